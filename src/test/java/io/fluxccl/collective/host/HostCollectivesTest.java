// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.host;

import static io.fluxccl.testing.OnRanks.Runner.lane;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.collective.Collective;
import io.fluxccl.collective.Collectives;
import io.fluxccl.collective.CollectivesOptions;
import io.fluxccl.collective.RandomCollectiveCase;
import io.fluxccl.collective.Registration;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.testing.OnRanks;
import io.fluxccl.testing.Rounds;
import io.fluxccl.testkit.LocalRank;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import reactor.core.publisher.Mono;

/** Collectives of host devices: random shapes, in and out of place, registered or not. */
@OnRanks(value = OnRanks.FIRST_ARGUMENT, seconds = 120)
class HostCollectivesTest {
  private static final Duration LONG = Duration.ofSeconds(120);

  private static Collectives create(LocalRank rank, String algorithm, int threads) {
    CollectivesOptions options = CollectivesOptions.DEFAULT.withThreads(threads);
    for (Collective collective : Collective.plain()) {
      if (!algorithm.equals("any")) {
        options = options.withAlgorithm(collective, algorithm);
      }
    }
    return lane(rank, options.withTimeout(LONG));
  }

  private static DeviceBuffer allocate(LocalRank rank, int maxBytes) {
    return rank.device().allocate(RandomCollectiveCase.memory(rank.nRanks(), maxBytes));
  }

  @ParameterizedTest
  @CsvSource({
    "1,any,1,2000",
    "2,any,1,200000",
    "2,any,2,3000000",
    "2,any,3,600000",
    "3,any,2,300000",
    "4,any,1,100000",
    "2,host-one-shot,1,300000",
    "3,host-one-shot,2,150000",
    "2,host-staged,1,300000",
    "3,host-staged,2,300000",
    "4,host-direct,1,20000"
  })
  void shouldDoAnyCollectiveOfAnyShape(
      int nRanks, String algorithm, int threads, int maxBytes, LocalRank rank) {
    Random random = new Random(nRanks * 1000L + threads);
    try (DeviceBuffer known = allocate(rank, maxBytes);
        DeviceBuffer unknown = allocate(rank, maxBytes);
        Collectives collectives = create(rank, algorithm, threads);
        Registration registration = collectives.register(known).join()) {
      List<Collective> all = Collective.plain();
      for (int i = 0; i < Rounds.of(2 * all.size(), 150); i++) {
        Collective which = all.get(i % all.size());
        // Ranks may register differently; a mixed call uses no registration.
        int choice = random.nextInt(5);
        boolean registered = choice < 2 || choice == 4 && (rank.rank() & 1) == 0;
        RandomCollectiveCase.Run run =
            new RandomCollectiveCase(random, nRanks, which, maxBytes)
                .on(rank.rank(), registered ? known : unknown);
        Mono<Void> pause = collectives.barrier(); // all ranks have filled their memory
        pause.then(collectives.run(run.call)).block(LONG);
        collectives.barrier().block(LONG); // before any rank refills its memory
        run.verify();
      }
      assertThat(registration.buffer()).isSameAs(known);
    }
  }

  @ParameterizedTest
  @CsvSource({"2,1,9000", "3,1,40000", "4,2,3000"})
  void shouldKeepManyCallsApartWhenRanksRunAhead(
      int nRanks, int threads, int maxBytes, LocalRank rank) {
    int window = 16;
    Random random = new Random(7);
    Random skew = new Random(rank.rank());
    List<DeviceBuffer> memory = new ArrayList<>();
    for (int i = 0; i < window; i++) {
      memory.add(allocate(rank, maxBytes));
    }
    try (Collectives collectives = create(rank, "any", threads)) {
      for (int round = 0; round < Rounds.of(12, 60); round++) {
        List<RandomCollectiveCase.Run> runs = new ArrayList<>();
        List<Mono<Void>> done = new ArrayList<>();
        for (int i = 0; i < window; i++) {
          RandomCollectiveCase each = RandomCollectiveCase.draw(random, nRanks, maxBytes);
          runs.add(each.on(rank.rank(), memory.get(i)));
          done.add(Mono.fromFuture(collectives.run(runs.get(i).call).toFuture()));
          for (int spin = skew.nextInt(3000); spin > 0; spin--) {
            Thread.onSpinWait();
          }
        }
        Mono.when(done).block(LONG);
        runs.forEach(RandomCollectiveCase.Run::verify);
      }
    }
  }

  @Test
  @OnRanks(3)
  void shouldRunTwoLanesAtOnce(LocalRank rank) {
    int maxBytes = 60_000;
    DeviceBuffer mine = allocate(rank, maxBytes);
    DeviceBuffer other = allocate(rank, maxBytes);
    try (Collectives first = create(rank, "any", 1);
        Collectives second = first.lane("second").join()) {
      Random random = new Random(3);
      for (int i = 0; i < Rounds.of(40, 200); i++) {
        RandomCollectiveCase.Run a =
            RandomCollectiveCase.draw(random, 3, maxBytes).on(rank.rank(), mine);
        RandomCollectiveCase.Run b =
            RandomCollectiveCase.draw(random, 3, maxBytes).on(rank.rank(), other);
        Mono<Void> one = Mono.defer(() -> first.run(a.call));
        Mono<Void> two = Mono.defer(() -> second.run(b.call));
        (rank.rank() == 1 ? Mono.when(one, two) : Mono.when(two, one)).block(LONG);
        a.verify();
        b.verify();
      }
    }
  }
}

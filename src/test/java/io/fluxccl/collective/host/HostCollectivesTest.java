// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.host;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.collective.Collective;
import io.fluxccl.collective.Collectives;
import io.fluxccl.collective.CollectivesOptions;
import io.fluxccl.collective.Registration;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.testing.Rounds;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.LocalRanks;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;
import reactor.core.publisher.Mono;

/** Every collective in every shape, compared with expected results. */
class HostCollectivesTest {
  private static final Duration LONG = Duration.ofSeconds(120);

  private static Collectives create(LocalRank rank, String algorithm, int threads) {
    CollectivesOptions options = CollectivesOptions.DEFAULT.withThreads(threads);
    for (Collective collective : Collective.plain()) {
      if (!algorithm.equals("any")) {
        options = options.withAlgorithm(collective, algorithm);
      }
    }
    return Collectives.create(rank.communicator(), options.withTimeout(LONG)).join();
  }

  @ParameterizedTest
  @CsvSource({
    "2,any,1,200000",
    "2,any,3,600000",
    "3,any,2,300000",
    "4,any,1,100000",
    "2,host-one-shot,1,300000",
    "3,host-one-shot,2,150000",
    "2,host-staged,1,300000",
    "3,host-staged,2,300000",
    "4,host-direct,1,20000"
  })
  void shouldDoAnyCollectiveOfAnyShape(int nRanks, String algorithm, int threads, int maxBytes) {
    try (LocalRanks ranks = LocalRanks.of(nRanks)) {
      ranks.run(
          LONG,
          rank -> {
            Random random = new Random(nRanks * 1000L + threads);
            long size = RandomCollectiveCase.memory(nRanks, maxBytes);
            try (DeviceBuffer known = rank.device().allocate(size);
                DeviceBuffer unknown = rank.device().allocate(size);
                Collectives collectives = create(rank, algorithm, threads);
                Registration registration = collectives.register(known).join()) {
              for (int i = 0; i < Rounds.of(20, 150); i++) {
                RandomCollectiveCase exercise = RandomCollectiveCase.draw(random, nRanks, maxBytes);
                // Mostly all ranks' buffers are registered, or none; sometimes only some ranks'.
                int choice = random.nextInt(5);
                boolean registered = choice < 2 || choice == 4 && (rank.rank() & 1) == 0;
                RandomCollectiveCase.Run run =
                    exercise.on(rank.rank(), registered ? known : unknown);
                Mono<Void> pause = collectives.barrier(); // all ranks have filled their memory
                pause.then(collectives.run(run.call)).block(LONG);
                collectives.barrier().block(LONG); // before any rank refills its memory
                run.verify();
              }
              assertThat(registration.buffer()).isSameAs(known);
            }
          });
    }
  }

  /** Several operations in flight at a time; ranks do not wait between them. */
  @ParameterizedTest
  @CsvSource({"2,1,9000", "3,1,40000", "4,2,3000"})
  void shouldKeepManyCallsApartWhenRanksRunAhead(int nRanks, int threads, int maxBytes) {
    int window = 16;
    try (LocalRanks ranks = LocalRanks.of(nRanks)) {
      ranks.run(
          LONG,
          rank -> {
            Random random = new Random(7);
            Random skew = new Random(rank.rank());
            List<DeviceBuffer> memory = new ArrayList<>();
            for (int i = 0; i < window; i++) {
              memory.add(rank.device().allocate(RandomCollectiveCase.memory(nRanks, maxBytes)));
            }
            try (Collectives collectives = create(rank, "any", threads)) {
              for (int round = 0; round < Rounds.of(12, 60); round++) {
                List<RandomCollectiveCase.Run> runs = new ArrayList<>();
                List<Mono<Void>> done = new ArrayList<>();
                for (int i = 0; i < window; i++) {
                  RandomCollectiveCase exercise =
                      RandomCollectiveCase.draw(random, nRanks, maxBytes);
                  runs.add(exercise.on(rank.rank(), memory.get(i)));
                  done.add(Mono.fromFuture(collectives.run(runs.get(i).call).toFuture()));
                  for (int spin = skew.nextInt(3000); spin > 0; spin--) {
                    Thread.onSpinWait();
                  }
                }
                Mono.when(done).block(LONG);
                runs.forEach(RandomCollectiveCase.Run::verify);
              }
            }
            memory.forEach(DeviceBuffer::close);
          });
    }
  }

  @ParameterizedTest
  @EnumSource(
      mode = EnumSource.Mode.EXCLUDE,
      names = {"FUSED_ALL_REDUCE", "DISPATCH", "COMBINE"})
  void shouldDoLargeCallsInPlaceOnRegisteredMemory(Collective collective) {
    int maxBytes = 3_000_000;
    int nRanks = 2;
    try (LocalRanks ranks = LocalRanks.of(nRanks)) {
      ranks.run(
          LONG,
          rank -> {
            Random random = new Random(collective.ordinal());
            try (DeviceBuffer memory =
                    rank.device().allocate(RandomCollectiveCase.memory(nRanks, maxBytes));
                Collectives collectives = create(rank, "any", 2);
                Registration registration = collectives.register(memory).join()) {
              for (int i = 0; i < Rounds.of(3, 6); i++) {
                RandomCollectiveCase exercise =
                    RandomCollectiveCase.of(random, nRanks, collective, maxBytes);
                RandomCollectiveCase.Run run = exercise.on(rank.rank(), memory);
                collectives.barrier().then(collectives.run(run.call)).block(LONG);
                collectives.barrier().block(LONG);
                run.verify();
              }
              assertThat(registration.id()).isZero();
            }
          });
    }
  }

  @Test
  void shouldRunTwoLanesAtOnce() {
    int nRanks = 3;
    int maxBytes = 60_000;
    try (LocalRanks ranks = LocalRanks.of(nRanks)) {
      ranks.run(
          LONG,
          rank -> {
            try (Collectives first = create(rank, "any", 1);
                Collectives second = first.lane("second").join();
                DeviceBuffer mine =
                    rank.device().allocate(RandomCollectiveCase.memory(nRanks, maxBytes));
                DeviceBuffer other =
                    rank.device().allocate(RandomCollectiveCase.memory(nRanks, maxBytes))) {
              Random random = new Random(3);
              for (int i = 0; i < Rounds.of(40, 200); i++) {
                RandomCollectiveCase.Run a =
                    RandomCollectiveCase.draw(random, nRanks, maxBytes).on(rank.rank(), mine);
                RandomCollectiveCase.Run b =
                    RandomCollectiveCase.draw(random, nRanks, maxBytes).on(rank.rank(), other);
                // Ranks call the two in different orders.
                Mono<Void> one = Mono.defer(() -> first.run(a.call));
                Mono<Void> two = Mono.defer(() -> second.run(b.call));
                (rank.rank() == 1 ? Mono.when(one, two) : Mono.when(two, one)).block(LONG);
                a.verify();
                b.verify();
              }
            }
          });
    }
  }
}

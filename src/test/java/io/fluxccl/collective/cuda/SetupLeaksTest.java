package io.fluxccl.collective.cuda;

import static org.assertj.core.api.Assertions.assertThat;
import static org.awaitility.Awaitility.await;

import io.fluxccl.collective.AlgorithmFamily;
import io.fluxccl.collective.AlgorithmSet;
import io.fluxccl.collective.CollectiveAlgorithm;
import io.fluxccl.collective.Collectives;
import io.fluxccl.collective.CollectivesOptions;
import io.fluxccl.collective.FakeMemory;
import io.fluxccl.collective.PeerMesh;
import io.fluxccl.collective.RankTopology;
import io.fluxccl.testing.FakeCuda;
import io.fluxccl.testkit.LocalRanks;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.function.Function;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** That sets give back what they took, also when their set-up comes too late. */
@FakeCuda
@Timeout(120)
class SetupLeaksTest {
  private static final Duration LONG = Duration.ofSeconds(100);

  /** A family without algorithms, whose set-up is the test. */
  private record Probe(Function<PeerMesh, CompletableFuture<Void>> test)
      implements AlgorithmFamily {
    @Override
    public String name() {
      return "a-probe";
    }

    @Override
    public List<String> description() {
      return List.of();
    }

    @Override
    public boolean supports(RankTopology topology) {
      return true;
    }

    @Override
    public CompletableFuture<AlgorithmSet> prepare(PeerMesh mesh) {
      return test.apply(mesh).thenApply(done -> new Nothing());
    }
  }

  private static final class Nothing implements AlgorithmSet {
    @Override
    public List<CollectiveAlgorithm> algorithms() {
      return List.of();
    }

    @Override
    public void close() {}
  }

  /** On two ranks, each on a GPU of its own. */
  private static void onAMesh(Function<PeerMesh, CompletableFuture<Void>> test) {
    try (LocalRanks ranks = LocalRanks.onGpus(2)) {
      ranks.run(
          LONG,
          rank ->
              Collectives.create(
                      rank.communicator(),
                      CollectivesOptions.DEFAULT.withSetupTimeout(LONG).withFamily(new Probe(test)))
                  .join()
                  .close());
    }
  }

  @Test
  void shouldFreeScratchThatComesAfterClosing() {
    onAMesh(SetupLeaksTest::nothing);
    long before = FakeMemory.settled();
    onAMesh(
        mesh ->
            ReduceSet.prepare(mesh)
                .thenCompose(
                    set -> {
                      set.close();
                      return set.reserve(16 << 20);
                    }));
    await().untilAsserted(() -> assertThat(FakeMemory.free()).isGreaterThanOrEqualTo(before));
  }

  private static CompletableFuture<Void> nothing(PeerMesh mesh) {
    return CompletableFuture.completedFuture(null);
  }
}

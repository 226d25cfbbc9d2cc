// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.device.cuda.EngineMemory;
import io.fluxccl.device.cuda.EngineStream;
import io.fluxccl.group.JoinOptions;
import io.fluxccl.group.RankGroup;
import io.fluxccl.testing.EmulatedGpus;
import io.fluxccl.testing.TestJvms;
import io.fluxccl.testkit.ProcessRank;
import io.fluxccl.testkit.ProcessRanks;
import java.time.Duration;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Collectives on an engine's memory and streams, each rank in a process of its own. */
@Timeout(300)
abstract class EngineMemoryProcessesContract {
  private static final int RANKS = 2;

  /** A rank that does all collectives on all kinds of memory. */
  static final class Rank {
    private static final Duration LONG = Duration.ofSeconds(100);

    public static void main(String[] args) {
      try (RankGroup group =
          RankGroup.join(JoinOptions.fromEnvironment().withTimeout(LONG)).join()) {
        EngineMemory engine = new EngineMemory((CudaDevice) group.device());
        EngineCollectives ranks = new EngineCollectives(group.collectives());
        for (EngineMemory.Kind kind : EngineMemory.Kind.values()) {
          if (!engine.has(kind)) {
            System.out.println("without " + kind);
            continue;
          }
          for (int count : EmulatedGpus.HERE ? new int[] {1000} : new int[] {1, 1000, 3 << 20}) {
            ranks.doAll(engine, kind, count, true);
          }
        }
        ranks.agreeOnWhatIsStaged(engine);
        ranks.replay(
            engine,
            EmulatedGpus.HERE ? 600 : 100_000,
            true,
            EmulatedGpus.HERE ? 50 : 1000,
            EngineStream.GLOBAL);
        group.collectives().barrier().block(LONG);
        System.out.println("all right");
      } catch (Throwable e) {
        e.printStackTrace();
        System.out.println("wrong: " + e);
      }
      // The exit frees the engine's memory; a hanging kernel must not prevent it.
      Runtime.getRuntime().halt(0);
    }
  }

  @Test
  void shouldDoEveryCollectiveBetweenProcesses() throws Exception {
    try (ProcessRanks ranks =
        TestJvms.of(RANKS, Rank.class)
            .jvmOptions("-Xmx512m")
            .variablesByRank(rank -> Map.of("FLUXCCL_DEVICE", "cuda:" + rank))
            .start()) {
      for (ProcessRank process : ranks.all()) {
        process.awaitLine("all right");
      }
    }
  }
}

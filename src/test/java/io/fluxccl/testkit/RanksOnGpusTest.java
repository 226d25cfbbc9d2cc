// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.testkit;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.collective.Collectives;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.testing.EmulatedGpus;
import io.fluxccl.testing.RequiresGpus;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

/** {@link Ranks} on GPUs, which detects leaks of GPU memory. */
@EmulatedGpus
@RequiresGpus
class RanksOnGpusTest {
  @Tag("fixture")
  static class Fixture {
    private static final List<Object> KEPT = new ArrayList<>();

    @Test
    @Ranks(value = 2, onGpus = true)
    void leaves(LocalRank rank) {
      synchronized (KEPT) {
        KEPT.add(rank.device().allocate(rank.rank() == 0 ? 4 : 3 << 20));
      }
    }

    @Test
    @Ranks(value = 2, onGpus = true)
    void closes(LocalRank rank, Collectives collectives) {
      try (DeviceBuffer large = rank.device().allocate(3 << 20);
          DeviceBuffer small = rank.device().allocate(64)) {
        collectives.allReduce(small, DataType.INT32, ReduceOp.SUM).block(Duration.ofSeconds(60));
      }
    }
  }

  @Test
  void shouldReportLeakedGpuMemory() {
    String rank = "(" + LocalRank.class.getName() + ")";
    String ofBoth = "(" + LocalRank.class.getName() + ", " + Collectives.class.getName() + ")";
    assertThat(RanksExtensionTest.failureOf(Fixture.class, "leaves" + rank, 500))
        .contains("leaked: GPU memory ", "2097152 bytes at 0x", "4194304 bytes at 0x");
    assertThat(RanksExtensionTest.failureOf(Fixture.class, "closes" + ofBoth, 5000)).isEmpty();
  }
}

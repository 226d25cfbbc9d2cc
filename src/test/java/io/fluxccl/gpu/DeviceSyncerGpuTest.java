// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.gpu;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.IntView;
import io.fluxccl.device.Kernel;
import io.fluxccl.testing.EmulatedGpus;
import io.fluxccl.testing.RequiresGpus;
import java.util.Arrays;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** A barrier of all blocks of a grid. */
@EmulatedGpus
@RequiresGpus
class DeviceSyncerGpuTest {
  private static final int SYNCER_LENGTH = 128;
  private static final int ROUNDS = EmulatedGpus.HERE ? 100 : 2000;
  private static final int THREADS = 96;

  @ParameterizedTest
  @ValueSource(ints = {1, 2, 7, 64})
  void shouldShowWritesOfAllBlocksToEachBlock(int blocks) throws Exception {
    Kernel kernel = TestKernels.of("device_syncer", "syncRounds");
    GpuRanks.runOne(
        rank -> {
          DeviceBuffer syncer = rank.allocate(SYNCER_LENGTH);
          DeviceBuffer values = rank.allocate((long) blocks * Integer.BYTES);
          Object[] args = {syncer, rank.communicator().abortFlag(), values, ROUNDS};
          // One syncer serves grids of any size, one after the other.
          for (int grid : new int[] {blocks, Math.min(3, blocks), blocks}) {
            assertThat(rank.count(kernel, grid, THREADS, args)).isEqualTo(grid);
          }
        });
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 3, 6})
  void shouldSyncAnyBlocksOfAGrid(int blocks) throws Exception {
    int grid = 7;
    Kernel kernel = TestKernels.of("mscclpp", "mscclppSyncSome");
    GpuRanks.runOne(
        rank -> {
          DeviceBuffer syncer = rank.allocate(SYNCER_LENGTH);
          DeviceBuffer values = rank.allocate((long) grid * Integer.BYTES);
          rank.check(kernel, grid, THREADS, syncer, blocks, ROUNDS, values);
          int[] expected = new int[grid];
          Arrays.fill(expected, grid - blocks, grid, ROUNDS);
          assertThat(IntView.of(values).toArray()).isEqualTo(expected);
        });
  }
}

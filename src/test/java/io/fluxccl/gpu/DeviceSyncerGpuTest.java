// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.gpu;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.device.AbortFlag;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.testing.EmulatedGpus;
import io.fluxccl.testing.RequiresGpus;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** A barrier of all blocks of a grid. */
@EmulatedGpus
@RequiresGpus
class DeviceSyncerGpuTest {
  private static final int SYNCER_LENGTH = 128;
  private static final int ROUNDS = EmulatedGpus.HERE ? 100 : 2000;
  private static final int THREADS = 96;
  private static final int TIMEOUT_SECONDS = 30;

  @ParameterizedTest
  @ValueSource(ints = {1, 2, 7, 64})
  void shouldShowWritesOfAllBlocksToEachBlock(int blocks) throws Exception {
    try (CudaDevice device = CudaDevice.open(0);
        AbortFlag abort = new AbortFlag(device);
        DeviceStream stream = device.createStream("syncer");
        DeviceBuffer syncer = device.allocate(SYNCER_LENGTH);
        DeviceBuffer values = device.allocate((long) blocks * Integer.BYTES);
        DeviceBuffer wrong = device.allocate(Integer.BYTES);
        DeviceBuffer done = device.allocate(Integer.BYTES)) {
      TestKernels.prepare(device, "device_syncer");
      // One syncer serves grids of any size, one after the other.
      for (int grid : new int[] {blocks, 3, blocks}) {
        int launched = Math.min(grid, blocks);
        int before = word(done);
        stream.launch(
            TestKernels.of("device_syncer", "syncRounds"),
            launched,
            THREADS,
            KernelArgs.of(syncer, abort, values, ROUNDS, wrong, done));
        stream.completion().get(TIMEOUT_SECONDS, TimeUnit.SECONDS);
        assertThat(word(wrong)).isZero();
        assertThat(word(done) - before).isEqualTo(launched);
      }
    }
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 3, 6})
  void shouldSyncAnyBlocksOfAGrid(int blocks) throws Exception {
    int grid = 7;
    try (CudaDevice device = CudaDevice.open(0);
        DeviceStream stream = device.createStream("syncer");
        DeviceBuffer syncer = device.allocate(SYNCER_LENGTH);
        DeviceBuffer values = device.allocate((long) grid * Integer.BYTES);
        DeviceBuffer wrong = device.allocate(Integer.BYTES)) {
      TestKernels.prepare(device, "mscclpp");
      stream.launch(
          TestKernels.of("mscclpp", "mscclppSyncSome"),
          grid,
          THREADS,
          KernelArgs.of(syncer, blocks, ROUNDS, values, wrong));
      stream.completion().get(TIMEOUT_SECONDS, TimeUnit.SECONDS);
      assertThat(word(wrong)).isZero();
      ByteBuffer rounds =
          ByteBuffer.allocateDirect(grid * Integer.BYTES).order(ByteOrder.LITTLE_ENDIAN);
      values.download(0, rounds);
      for (int block = 0; block < grid; block++) {
        assertThat(rounds.getInt(block * Integer.BYTES))
            .as("block " + block)
            .isEqualTo(block < grid - blocks ? 0 : ROUNDS);
      }
    }
  }

  private static int word(DeviceBuffer buffer) {
    ByteBuffer value = ByteBuffer.allocateDirect(Integer.BYTES).order(ByteOrder.LITTLE_ENDIAN);
    buffer.download(0, value);
    return value.getInt(0);
  }
}

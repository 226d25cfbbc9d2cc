// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.docs;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.FluxCclException;
import io.fluxccl.channel.SmChannel;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.device.cuda.CudaModule;
import io.fluxccl.docs.KernelsAndChannelsTest.Ends;
import io.fluxccl.semaphore.SmDevice2DeviceSemaphore;
import io.fluxccl.testing.RequiresGpus;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.LocalRanks;
import io.fluxccl.transport.Transport;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** The code of docs/7-your-own-cuda-kernel.md. */
@Timeout(120)
class YourOwnCudaKernelTest {
  private static final int COUNT = 256;
  private static final int HALF = COUNT * Float.BYTES;

  @TempDir private Path folder;

  @Test
  @RequiresGpus
  void shouldScaleAndSend() throws Exception {
    Path file = folder.resolve("scale_and_send.cu");
    try (InputStream in = getClass().getResourceAsStream("/cuda/scale_and_send.cu")) {
      Files.copy(in, file);
    }
    run(file);
  }

  private static void run(Path file) {
    try (CudaModule module = CudaModule.fromFile(file);
        LocalRanks ranks = LocalRanks.onGpus(2)) {
      ranks.ranks().forEach(rank -> module.prepare((CudaDevice) rank.device()));
      ranks.run(rank -> scaleAndSend(rank, module));
    }
  }

  private static void scaleAndSend(LocalRank rank, CudaModule module) {
    Ends ends = Ends.of(rank.communicator(), 1 - rank.rank(), Transport.CUDA_IPC);
    ends.buffer().upload(0, numbers(rank.rank() + 1));

    exchange(rank.communicator(), rank.stream(), ends, module);

    ByteBuffer theirs = ByteBuffer.allocateDirect(HALF).order(ByteOrder.LITTLE_ENDIAN);
    ends.buffer().download(HALF, theirs);
    for (int i = 0; i < COUNT; i++) {
      assertThat(theirs.getFloat(i * Float.BYTES)).isEqualTo((2 - rank.rank()) * i * 0.5f);
    }
  }

  private static ByteBuffer numbers(int factor) {
    ByteBuffer numbers = ByteBuffer.allocateDirect(HALF).order(ByteOrder.LITTLE_ENDIAN);
    for (int i = 0; i < COUNT; i++) {
      numbers.putFloat((float) factor * i);
    }
    return numbers.flip();
  }

  private static void exchange(
      Communicator communicator, DeviceStream stream, Ends ends, CudaModule module) {
    SmDevice2DeviceSemaphore semaphore =
        new SmDevice2DeviceSemaphore(communicator, ends.connection());
    DeviceBuffer came = communicator.device().allocate(Integer.BYTES);
    communicator.setup().join();
    SmChannel channel = new SmChannel(semaphore, ends.theirs(), ends.buffer());
    stream.launch(
        module.kernel("scaleAndSend"),
        1,
        128,
        KernelArgs.of(channel, ends.buffer(), 256, 0.5f, came));
    communicator.inFlight(stream.completion()).join();
    FluxCclException failure = communicator.failure();
    if (failure != null) {
      throw failure; // the kernel gave up, and this is why
    }
    semaphore.close();
    came.close();
  }
}

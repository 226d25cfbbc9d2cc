// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.gpu;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.Deadline;
import io.fluxccl.bootstrap.Bootstrap;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.Kernel;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.device.cuda.CudaDeviceOptions;
import io.fluxccl.device.cuda.CudaMemoryKind;
import io.fluxccl.testing.EmulatedGpus;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.concurrent.TimeUnit;

/** One rank on a GPU, with common operations of tests. The test that creates it must close it. */
public final class GpuRank implements AutoCloseable {
  static final Duration PATIENCE = Duration.ofSeconds(60);

  /** {@code -Dfluxccl.test.memory=VMM} runs the tests on memory of the other kind. */
  static final CudaMemoryKind MEMORY =
      CudaMemoryKind.valueOf(System.getProperty("fluxccl.test.memory", "PLAIN"));

  private final Bootstrap bootstrap;
  private final CudaDevice device;
  private final Communicator communicator;
  private final DeviceStream stream;
  private final boolean timeSliced;
  private final Deque<AutoCloseable> owned = new ArrayDeque<>();

  private GpuRank(
      Bootstrap bootstrap,
      CudaDevice device,
      Communicator communicator,
      DeviceStream stream,
      boolean timeSliced) {
    this.bootstrap = bootstrap;
    this.device = device;
    this.communicator = communicator;
    this.stream = stream;
    this.timeSliced = timeSliced;
  }

  /**
   * A rank on a GPU.
   *
   * @param bootstrap stays the caller's
   * @param gpu index
   * @param timeSliced whether a process of another rank uses the same GPU, so that kernels that
   *     wait for each other take turns of milliseconds
   */
  public static GpuRank create(Bootstrap bootstrap, int gpu, boolean timeSliced) {
    CudaDevice device = CudaDevice.open(gpu, CudaDeviceOptions.DEFAULT.withMemory(MEMORY));
    try {
      DeviceStream stream = device.createStream("test");
      Communicator communicator = Communicator.create(bootstrap, device);
      return new GpuRank(bootstrap, device, communicator, stream, timeSliced);
    } catch (RuntimeException e) {
      device.close();
      throw e;
    }
  }

  public int rank() {
    return bootstrap.rank();
  }

  public int nRanks() {
    return bootstrap.nRanks();
  }

  /** The other one of two. */
  public int peer() {
    return 1 - rank();
  }

  public Bootstrap bootstrap() {
    return bootstrap;
  }

  public CudaDevice device() {
    return device;
  }

  public Communicator communicator() {
    return communicator;
  }

  public DeviceStream stream() {
    return stream;
  }

  /** So many rounds, or fewer where each takes milliseconds. */
  public int rounds(int wanted) {
    return timeSliced || EmulatedGpus.HERE ? Math.max(10, wanted / 50) : wanted;
  }

  /** Closes it with the rank, after those handed over later. */
  public <T extends AutoCloseable> T own(T resource) {
    owned.push(resource);
    return resource;
  }

  /** Memory that is closed with the rank. */
  public DeviceBuffer allocate(long bytes) {
    return own(device.allocate(bytes));
  }

  /** Enqueues a kernel of the tests. */
  public void launch(Kernel kernel, int blocks, int threads, Object... args) {
    stream.launch(kernel, blocks, threads, KernelArgs.of(args));
  }

  /** Waits for what is enqueued. */
  public void await() throws Exception {
    stream.completion().get(PATIENCE.toSeconds(), TimeUnit.SECONDS);
  }

  /** Launches and waits. */
  public void run(Kernel kernel, int blocks, int threads, Object... args) throws Exception {
    launch(kernel, blocks, threads, args);
    await();
  }

  /** Waits until every rank is here. */
  public void barrier() {
    bootstrap.barrier(Deadline.after(PATIENCE)).join();
  }

  /** Asserts that a counter of errors, which a kernel counts up, is zero. */
  public void assertNothingWrong(DeviceBuffer wrong) {
    assertThat(readInt(wrong, 0)).as("what kernels on rank " + rank() + " found wrong").isZero();
  }

  public static int readInt(DeviceBuffer buffer, long offset) {
    ByteBuffer bytes = ByteBuffer.allocateDirect(Integer.BYTES).order(ByteOrder.LITTLE_ENDIAN);
    buffer.download(offset, bytes);
    return bytes.getInt(0);
  }

  public static byte[] read(DeviceBuffer buffer) {
    byte[] bytes = new byte[(int) buffer.size()];
    buffer.download(0, bytes);
    return bytes;
  }

  public static void write(DeviceBuffer buffer, byte[] content) {
    buffer.upload(0, content);
  }

  /** Closes all objects that this rank owns, the last first. The rank can then be used again. */
  public void closeOwned() throws Exception {
    while (!owned.isEmpty()) {
      owned.pop().close();
    }
  }

  @Override
  public void close() throws Exception {
    try {
      closeOwned();
    } finally {
      communicator.close();
      stream.close();
      device.close();
    }
  }
}

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
import java.util.Arrays;
import java.util.Deque;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;

/** One rank on a GPU, with common operations of tests. Closing it closes what it owns. */
public final class GpuRank implements AutoCloseable {
  static final Duration PATIENCE = Duration.ofSeconds(60);

  /** {@code -Dfluxccl.test.memory=VMM} runs the tests on memory of the other kind. */
  static final CudaMemoryKind MEMORY =
      CudaMemoryKind.valueOf(System.getProperty("fluxccl.test.memory", "PLAIN"));

  private final Bootstrap bootstrap;
  private final Communicator communicator;
  private final DeviceStream stream;
  private final boolean timeSliced;
  private final Deque<AutoCloseable> owned = new ArrayDeque<>();

  /**
   * A rank on a GPU.
   *
   * @param bootstrap stays the caller's, as do the communicator and the stream
   * @param timeSliced whether a process of another rank uses the same GPU, so that kernels that
   *     wait for each other take turns of milliseconds
   */
  GpuRank(Bootstrap bootstrap, Communicator communicator, DeviceStream stream, boolean timeSliced) {
    this.bootstrap = bootstrap;
    this.communicator = communicator;
    this.stream = stream;
    this.timeSliced = timeSliced;
  }

  /** Opens a GPU with memory of the kind that the tests use. */
  static CudaDevice open(int gpu) {
    return CudaDevice.open(gpu, CudaDeviceOptions.DEFAULT.withMemory(MEMORY));
  }

  public int rank() {
    return bootstrap.rank();
  }

  /** The other one of two. */
  public int peer() {
    return 1 - rank();
  }

  public CudaDevice device() {
    return (CudaDevice) communicator.device();
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
    return own(device().allocate(bytes));
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

  /** Runs a kernel on both ranks; its last argument, which this adds, counts errors. */
  public void check(Kernel kernel, int blocks, int threads, Object... args) throws Exception {
    checkWith(kernel, blocks, threads, args, allocate(Integer.BYTES));
  }

  /** As {@link #check}, with a last argument that counts what is done; returns this count. */
  public int count(Kernel kernel, int blocks, int threads, Object... args) throws Exception {
    DeviceBuffer done = allocate(Integer.BYTES);
    checkWith(kernel, blocks, threads, args, allocate(Integer.BYTES), done);
    return readInt(done, 0);
  }

  private void checkWith(
      Kernel kernel, int blocks, int threads, Object[] args, DeviceBuffer... counters)
      throws Exception {
    barrier();
    Object[] all = Stream.concat(Arrays.stream(args), Arrays.stream(counters)).toArray();
    run(kernel, blocks, threads, all);
    String what = "what kernels on rank " + rank() + " found wrong";
    assertThat(readInt(counters[0], 0)).as(what).isZero();
    barrier();
  }

  /** Waits until every rank is here. */
  public void barrier() {
    bootstrap.barrier(Deadline.after(PATIENCE)).join();
  }

  public static int readInt(DeviceBuffer buffer, long offset) {
    ByteBuffer bytes = ByteBuffer.allocateDirect(Integer.BYTES).order(ByteOrder.LITTLE_ENDIAN);
    buffer.download(offset, bytes);
    return bytes.getInt(0);
  }

  /** Closes all objects that this rank owns, the last first. The rank can then be used again. */
  @Override
  public void close() throws Exception {
    while (!owned.isEmpty()) {
      owned.pop().close();
    }
  }
}

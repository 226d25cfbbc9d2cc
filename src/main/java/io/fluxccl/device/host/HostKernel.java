// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.host;

import io.fluxccl.device.DeviceKind;
import io.fluxccl.device.Kernel;
import io.fluxccl.device.KernelArgs;
import java.util.Objects;

/**
 * A kernel that is a Java function. Each thread of each block of a launch calls it once.
 *
 * <p>The threads of a block run at the same time, each a thread of its own, so that they can wait
 * for each other; up to {@link #MAX_BLOCK_DIM}, but a thread costs a start when it is first needed
 * and more of them than cores take turns: prefer few threads with more work each. The blocks of a
 * grid run one after the other, in order: a block must not wait for a later one of the same launch.
 * A launch of one thread a block runs on the stream's own thread, without any synchronisation.
 *
 * @param name for diagnostics
 * @param body called by many threads at the same time
 */
public record HostKernel(String name, Body body) implements Kernel {
  /** The most threads that a block can have. */
  public static final int MAX_BLOCK_DIM = 1024;

  /** Refuses null. */
  public HostKernel {
    Objects.requireNonNull(name, "name");
    Objects.requireNonNull(body, "body");
  }

  /** What one thread of a kernel does. */
  @FunctionalInterface
  public interface Body {
    /**
     * Runs one thread of the kernel.
     *
     * @param thread which thread this is; not to be kept beyond the call
     * @param args the launch's arguments, the same object for all threads
     * @throws Exception when the kernel fails: the launch's other threads are let out of {@link
     *     KernelThread#syncThreads()}, and the stream's next completion reports it
     */
    void run(KernelThread thread, KernelArgs args) throws Exception;
  }

  /**
   * Returns a kernel.
   *
   * @param name for diagnostics
   * @param body called by many threads at the same time
   * @return the kernel
   */
  public static HostKernel of(String name, Body body) {
    return new HostKernel(name, body);
  }

  @Override
  public DeviceKind kind() {
    return DeviceKind.HOST;
  }

  @Override
  public String toString() {
    return "HostKernel(" + name + ")";
  }
}

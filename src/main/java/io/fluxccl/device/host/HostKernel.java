// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.host;

import io.fluxccl.device.DeviceKind;
import io.fluxccl.device.Kernel;
import io.fluxccl.device.KernelArgs;
import java.util.Objects;

/**
 * A kernel that is a Java function. Each thread of each block of a launch calls it once.
 *
 * <p>The threads of a block, up to {@link #MAX_BLOCK_DIM}, are separate threads that run
 * concurrently, so they can wait for each other. Starting threads takes time, and more threads than
 * cores share the cores: prefer few threads with more work each. The blocks of a grid run in order,
 * one at a time. A block must not wait for a later block of the same launch. A launch with one
 * thread per block runs on the stream's thread, without synchronisation.
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

  /** The code that each thread of a kernel runs. */
  @FunctionalInterface
  public interface Body {
    /**
     * Runs one thread of the kernel.
     *
     * @param thread the current thread's position in the launch; valid only during the call
     * @param args the launch's arguments, the same object for all threads
     * @throws Exception if the kernel fails. The launch's other threads then return from {@link
     *     KernelThread#syncThreads()}, and the stream's next completion reports the failure
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

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.concurrent;

import io.fluxccl.DeviceFailure;
import reactor.core.scheduler.NonBlocking;

/**
 * A daemon thread of the library that completes what others wait for. Blocking on it would hold up
 * what is waited for, so Reactor's {@code block()} refuses to, with an IllegalStateException that
 * names the thread. One that the system does not give is a {@link DeviceFailure}.
 */
public final class NonblockingThread extends Thread implements NonBlocking {
  /**
   * A thread, not started.
   *
   * @param task what it does
   * @param name {@code fluxccl-} and whose it is
   */
  public NonblockingThread(Runnable task, String name) {
    this(task, name, 0);
  }

  /** With a stack of its own size; for tests. */
  NonblockingThread(Runnable task, String name, long stackSize) {
    super(null, RankLog.inherit(task), name, stackSize);
    setDaemon(true);
  }

  @Override
  public void start() {
    try {
      super.start();
    } catch (OutOfMemoryError e) {
      throw new DeviceFailure(
          0,
          "THREADS",
          "starting thread " + getName() + " failed; raise the limit of threads (ulimit -u)",
          e);
    }
  }
}

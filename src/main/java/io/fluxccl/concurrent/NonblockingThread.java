// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.concurrent;

import io.fluxccl.DeviceFailure;
import reactor.core.scheduler.NonBlocking;

/**
 * A daemon thread of the library that completes futures. A callback that blocks it could delay the
 * result for which it waits. Reactor's {@code block()} therefore throws an IllegalStateException
 * that names the thread. If the system can't start the thread, {@link #start} throws a {@link
 * DeviceFailure}.
 */
public final class NonblockingThread extends Thread implements NonBlocking {
  /**
   * Creates a thread without starting it.
   *
   * @param task the task to run
   * @param name {@code fluxccl-} and its owner
   */
  public NonblockingThread(Runnable task, String name) {
    this(task, name, 0);
  }

  /** Creates a thread with a given stack size; for tests. */
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

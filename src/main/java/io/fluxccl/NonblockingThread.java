package io.fluxccl;

import reactor.core.scheduler.NonBlocking;

/**
 * A daemon thread of the library that completes what others wait for. Blocking on it would hold up
 * what is waited for, so Reactor's {@code block()} refuses to, with an IllegalStateException that
 * names the thread.
 */
public final class NonblockingThread extends Thread implements NonBlocking {
  /**
   * A thread, not started.
   *
   * @param task what it does
   * @param name {@code fluxccl-} and whose it is
   */
  public NonblockingThread(Runnable task, String name) {
    super(task, name);
    setDaemon(true);
  }
}

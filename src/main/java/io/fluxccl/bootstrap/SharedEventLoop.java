// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.FluxCclException;
import io.fluxccl.OpenFiles;
import io.fluxccl.TransportFailure;
import io.fluxccl.concurrent.UseCount;
import io.netty.channel.EventLoop;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.nio.NioEventLoopGroup;
import io.netty.util.concurrent.FastThreadLocalThread;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import reactor.core.scheduler.NonBlocking;

/**
 * The one thread on which all bootstraps of this JVM work: their sockets, their timers and their
 * state. It lives while it has users; it is a daemon. Thread-safe.
 */
final class SharedEventLoop extends UseCount {
  // Guarded by the class.
  private static SharedEventLoop current;

  private final CompletableFuture<Void> ended = new CompletableFuture<>();

  // Netty 4.2 deprecates NioEventLoopGroup, but its successors are not in Netty 4.1, which Spring
  // Boot 3 pins. As an EventLoopGroup: the class's own next() returns another type in 4.2.
  @SuppressWarnings("deprecation")
  private final EventLoopGroup group = new NioEventLoopGroup(1, this::thread);

  private SharedEventLoop() {}

  private Thread thread(Runnable run) {
    Runnable untilEnded =
        () -> {
          try {
            run.run();
          } finally {
            ended.complete(null);
          }
        };
    Thread thread = new LoopThread(untilEnded);
    thread.setDaemon(true);
    return thread;
  }

  /** Blocking it would block all bootstraps, so Reactor's {@code block()} refuses to. */
  private static final class LoopThread extends FastThreadLocalThread implements NonBlocking {
    LoopThread(Runnable task) {
      super(task, "fluxccl-bootstrap");
    }
  }

  /** Adds a user, and starts the thread for the first one. */
  static synchronized SharedEventLoop acquire() {
    if (current == null || !current.tryRetain()) {
      current = start();
    }
    return current;
  }

  private static SharedEventLoop start() {
    try {
      return new SharedEventLoop();
    } catch (IllegalStateException e) {
      throw new TransportFailure(
          FluxCclException.NO_RANK,
          "the bootstrap's thread can't start: " + OpenFiles.explain(e, e.toString()),
          e);
    }
  }

  EventLoop loop() {
    return group.next();
  }

  /**
   * Removes a user. Called once by each.
   *
   * @return completes when the thread has ended, if this was its last user; else at once
   */
  CompletableFuture<Void> leave() {
    release();
    return users() > 0 ? CompletableFuture.completedFuture(null) : ended;
  }

  @Override
  protected void lastUserLeft() {
    group.shutdownGracefully(0, 1, TimeUnit.SECONDS);
  }
}

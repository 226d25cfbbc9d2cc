package io.fluxccl.bootstrap;

import io.fluxccl.concurrent.UseCount;
import io.netty.channel.EventLoop;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import io.netty.channel.nio.NioIoHandler;
import io.netty.util.concurrent.FastThreadLocalThread;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/**
 * The one thread on which all bootstraps of this JVM work: their sockets, their timers and their
 * state. It lives while it has users; it is a daemon. Thread-safe.
 */
final class SharedEventLoop extends UseCount {
  // Guarded by the class.
  private static SharedEventLoop current;

  private final CompletableFuture<Void> ended = new CompletableFuture<>();
  private final MultiThreadIoEventLoopGroup group =
      new MultiThreadIoEventLoopGroup(1, this::thread, NioIoHandler.newFactory());

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
    Thread thread = new FastThreadLocalThread(untilEnded, "fluxccl-bootstrap");
    thread.setDaemon(true);
    return thread;
  }

  /** Adds a user, and starts the thread for the first one. */
  static synchronized SharedEventLoop acquire() {
    if (current == null || !current.tryRetain()) {
      current = new SharedEventLoop();
    }
    return current;
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

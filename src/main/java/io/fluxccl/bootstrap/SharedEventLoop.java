package io.fluxccl.bootstrap;

import io.netty.channel.EventLoop;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import io.netty.channel.nio.NioIoHandler;
import io.netty.util.concurrent.DefaultThreadFactory;
import io.netty.util.concurrent.FastThreadLocalThread;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/**
 * The one thread on which all bootstraps of this JVM work: their sockets, their timers and their
 * state. It lives while a lease holds it; it is a daemon.
 */
final class SharedEventLoop {
  private static final Object LOCK = new Object();

  // Guarded by LOCK.
  private static SharedEventLoop current;

  private final MultiThreadIoEventLoopGroup group;
  private final CompletableFuture<Void> ended = new CompletableFuture<>();

  // Guarded by LOCK.
  private int holders;

  private SharedEventLoop() {
    DefaultThreadFactory factory =
        new DefaultThreadFactory("fluxccl-bootstrap", true) {
          @Override
          protected Thread newThread(Runnable run, String name) {
            return new FastThreadLocalThread(
                threadGroup,
                () -> {
                  try {
                    run.run();
                  } finally {
                    ended.complete(null);
                  }
                },
                name);
          }
        };
    group = new MultiThreadIoEventLoopGroup(1, factory, NioIoHandler.newFactory());
  }

  /** Holds the thread, and starts it for the first lease. */
  static Lease acquire() {
    synchronized (LOCK) {
      if (current == null) {
        current = new SharedEventLoop();
      }
      current.holders++;
      return new Lease(current);
    }
  }

  /** One holder's share. Thread-safe. */
  static final class Lease {
    private final SharedEventLoop shared;
    private final EventLoop loop;

    // Guarded by LOCK.
    private boolean released;

    private Lease(SharedEventLoop shared) {
      this.shared = shared;
      this.loop = shared.group.next();
    }

    EventLoop loop() {
      return loop;
    }

    /**
     * Lets go. Idempotent.
     *
     * @return completes when the thread has ended, if this was its last holder; else at once
     */
    CompletableFuture<Void> release() {
      synchronized (LOCK) {
        if (!released) {
          released = true;
          shared.holders--;
        }
        if (shared.holders > 0) {
          return CompletableFuture.completedFuture(null);
        }
        if (current == shared) {
          current = null;
          shared.group.shutdownGracefully(0, 1, TimeUnit.SECONDS);
        }
        return shared.ended;
      }
    }
  }
}

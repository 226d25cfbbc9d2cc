package io.fluxccl.transport.ethernet;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.FluxCclException;
import io.netty.channel.EventLoop;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import io.netty.channel.nio.NioIoHandler;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Looks go on whatever those throw who wait. */
@Timeout(60)
class CopyPollTest {
  private final MultiThreadIoEventLoopGroup group =
      new MultiThreadIoEventLoopGroup(1, NioIoHandler.newFactory());
  private final EventLoop loop = group.next();

  private static final class Copies implements CopyPoll.Pending {
    final CompletableFuture<FluxCclException> failure = new CompletableFuture<>();
    final CompletableFuture<Void> looked = new CompletableFuture<>();
    private final Error error;
    private final Error failing;
    private boolean pending = true;

    Copies(Error error, Error failing) {
      this.error = error;
      this.failing = failing;
    }

    @Override
    public boolean advance() {
      if (error != null) {
        throw error;
      }
      looked.complete(null);
      pending = false;
      return true;
    }

    @Override
    public boolean isPending() {
      return pending;
    }

    @Override
    public void failed(FluxCclException cause) {
      pending = false;
      failure.complete(cause);
      if (failing != null) {
        throw failing;
      }
    }
  }

  private static final class Stuck implements CopyPoll.Pending {
    private volatile boolean pending = true;

    @Override
    public boolean advance() {
      return false;
    }

    @Override
    public boolean isPending() {
      return pending;
    }

    @Override
    public void failed(FluxCclException cause) {
      pending = false;
    }
  }

  @AfterEach
  void close() {
    group.shutdownGracefully(0, 1, TimeUnit.SECONDS);
  }

  private void assertLooks(CopyPoll poll) throws Exception {
    Copies next = new Copies(null, null);
    loop.execute(() -> poll.add(next));
    next.looked.get(10, TimeUnit.SECONDS);
  }

  @Test
  void shouldGoOnWhenALookThrowsAnError() throws Exception {
    CopyPoll poll = new CopyPoll(loop, () -> {});
    Copies bad = new Copies(new InternalError("of a test"), null);
    loop.execute(() -> poll.add(bad));
    assertThat(bad.failure.get(10, TimeUnit.SECONDS)).hasMessageContaining("of a test");
    assertLooks(poll);
  }

  @Test
  void shouldGoOnWhenWhoIsToldOfThatThrowsToo() throws Exception {
    CopyPoll poll = new CopyPoll(loop, () -> {});
    Copies bad = new Copies(new InternalError("of a test"), new InternalError("of a test, too"));
    loop.execute(() -> poll.add(bad));
    bad.failure.get(10, TimeUnit.SECONDS);
    assertLooks(poll);
  }

  @Test
  void shouldGoOnWhenTheDeviceCannotBeAsked() throws Exception {
    CompletableFuture<Void> asked = new CompletableFuture<>();
    CopyPoll poll =
        new CopyPoll(
            loop,
            () -> {
              asked.complete(null);
              throw new InternalError("of a test");
            });
    Stuck stuck = new Stuck();
    loop.execute(() -> poll.add(stuck));
    asked.get(10, TimeUnit.SECONDS);
    assertLooks(poll);
    stuck.pending = false;
  }

  @Test
  void shouldTellTheOthersWhenOneThrowsWhenItIsTold() throws Exception {
    CopyPoll poll = new CopyPoll(loop, () -> {});
    Stuck first = new Stuck();
    Copies bad = new Copies(null, new InternalError("of a test"));
    Stuck last = new Stuck();
    loop.submit(
            () -> {
              poll.add(first);
              poll.add(bad);
              poll.add(last);
              try {
                poll.fail(FluxCclException.from(new IllegalStateException("of a test")));
              } catch (InternalError e) {
                // Whoever asks for it may learn of it.
                assertThat(e).hasMessage("of a test");
              }
            })
        .get(10, TimeUnit.SECONDS);
    assertThat(first.pending).isFalse();
    assertThat(last.pending).isFalse();
  }
}

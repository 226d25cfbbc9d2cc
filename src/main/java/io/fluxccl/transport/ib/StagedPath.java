package io.fluxccl.transport.ib;

import io.fluxccl.Closing;
import io.fluxccl.FluxCclException;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.PinnedBuffer;
import io.fluxccl.transport.PostQueue;
import java.io.IOException;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;

/**
 * How a connection reaches memory that the RDMA device can't: through pinned memory on both sides,
 * to and from which a stream of the connection's own copies. Both ends must do so. One thread at a
 * time, but for what says otherwise.
 */
final class StagedPath {
  /** A device that has come no further for so long is asked how it is. */
  private static final long STALL_NANOS = TimeUnit.MILLISECONDS.toNanos(5);

  private final DeviceStream stream;
  private final StagedOutbox outbox;
  private final StagedInbox inbox;
  private IbEndpointCodec.Inbox peer;
  private long movedNanos = System.nanoTime();
  private volatile boolean asking;

  private StagedPath(DeviceStream stream, StagedOutbox outbox, StagedInbox inbox) {
    this.stream = stream;
    this.outbox = outbox;
    this.inbox = inbox;
  }

  /**
   * Makes one end: all that is pinned is taken here, not while kernels run.
   *
   * @param device whose memory it is
   * @param port registers the pinned memory
   * @param memories what peers may write to
   * @param name of the stream
   */
  static StagedPath open(Device device, VerbsPort port, StagedMemories memories, String name)
      throws IOException {
    Deque<Runnable> undo = new ArrayDeque<>();
    try {
      DeviceStream stream = device.createPreferredStream(name);
      undo.push(stream::close);
      PinnedBuffer out = device.allocatePinned(StagedSlots.ALL);
      undo.push(out::close);
      PinnedBuffer in = device.allocatePinned(StagedSlots.ALL);
      undo.push(in::close);
      VerbsMemory outKey = port.register(out.buffer().addressOffset(), StagedSlots.ALL);
      undo.push(outKey::close);
      VerbsMemory inKey = port.register(in.buffer().addressOffset(), StagedSlots.ALL);
      return new StagedPath(
          stream,
          new StagedOutbox(out, outKey, stream),
          new StagedInbox(in, inKey, stream, memories));
    } catch (IOException | RuntimeException e) {
      undo.forEach(Runnable::run);
      throw e;
    }
  }

  /** What the peer must know. */
  IbEndpointCodec.Inbox own() {
    return new IbEndpointCodec.Inbox(
        inbox.address(), inbox.key(), outbox.creditAddress(), outbox.key());
  }

  void connect(IbEndpointCodec.Inbox other) {
    peer = other;
  }

  /**
   * Takes posts, sends what is copied, places what has come; returns how much of all that.
   *
   * @throws IOException if the device refuses, or the peer writes where it may not
   * @throws FluxCclException if the stream refuses
   */
  int advance(PostQueue<IbMemoryHandle> posts, StagedOutbox.Poster poster) throws IOException {
    int work =
        inbox.take()
            + inbox.acknowledge(poster, peer)
            + outbox.fill(posts)
            + outbox.launch(poster, peer);
    if (work > 0) {
      movedNanos = System.nanoTime();
    }
    return work;
  }

  /** The highest ticket of a flush that is done. */
  long doneTicket() {
    return outbox.doneTicket();
  }

  /** Whether the peer has not placed everything that this end took. */
  boolean isPending() {
    return outbox.isPending();
  }

  /** Whether copies are long in coming, of which the device should say whether it works. */
  boolean isStalled() {
    return !asking
        && (outbox.isCopying() || inbox.isPlacing())
        && System.nanoTime() - movedNanos > STALL_NANOS;
  }

  /**
   * Asks the device.
   *
   * @param failed told why it does not work, if it does not; on the device's thread
   */
  void ask(Consumer<Throwable> failed) {
    asking = true;
    stream
        .completion()
        .whenComplete(
            (done, error) -> {
              asking = false;
              if (error != null) {
                failed.accept(error);
              }
            });
  }

  /** Lets go of everything; the RDMA device has nothing of this connection any more. */
  void close() {
    Closing.all(stream, outbox::close, inbox::close);
  }
}

package io.fluxccl.transport.ethernet;

import io.fluxccl.FluxCclException;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceStream;
import io.netty.channel.Channel;
import org.agrona.DirectBuffer;

/**
 * What a connection sends while memory that sockets can't reach is among it: the bytes of the
 * stream one after the other in a ring of pinned memory, small frames stored by the event loop,
 * payload copied there by the device. The socket gets what lies before the first copy that is not
 * done. Confined to the event loop.
 */
final class StagedOutput implements CopyPoll.Pending {
  /** Longer copies are cut, so that the socket is busy with one while the device does the next. */
  static final int PIECE_LENGTH = 256 * 1024;

  static final int RING_LENGTH = 8 * PIECE_LENGTH;

  /** Room that every frame without its payload has, and copies of small payloads. */
  private static final int FRAME_ROOM = PostQueue.INLINE_LIMIT + FrameDescriptor.MAX_FRAME_LENGTH;

  private static final int MAX_GROUPS = 64;

  private final EthernetConnection connection;
  private final StagingRing ring;
  private final DeviceStream stream;
  private final CopyPoll poll;
  private final WindowPool pool;
  private final MemoryWindow.Owner released = this::released;

  // Copies with one mark behind them: where the first one's frame starts, and the mark.
  private final long[] groupStarts = new long[MAX_GROUPS];
  private final long[] groupMarks = new long[MAX_GROUPS];
  private int firstGroup;
  private int nextGroup;

  /** Where the copies start that have no mark yet, or -1. */
  private long unmarked = -1;

  private long handedOver;
  private int lent;
  private boolean starved;
  private boolean closed;

  StagedOutput(
      EthernetConnection connection,
      Device device,
      DeviceStream stream,
      CopyPoll poll,
      WindowPool pool) {
    this.connection = connection;
    this.ring = new StagingRing(device, RING_LENGTH);
    this.stream = stream;
    this.poll = poll;
    this.pool = pool;
  }

  /** Whether the socket has been given everything: what follows may take another way. */
  boolean isEmpty() {
    return handedOver == ring.claimed();
  }

  /** Whether there is room for a frame now; if not, the connection is pumped when there is. */
  boolean hasRoom() {
    starved = ring.room() < FRAME_ROOM;
    return !starved && !closed;
  }

  /** Stores bytes, for which there is room. */
  void put(DirectBuffer source, int index, int length) {
    if (!closed) {
      ring.put(source, index, length);
    }
  }

  /**
   * The next frame's payload will be copied: the frame leaves with it, not before.
   *
   * @return false when there are too many copies under way; the connection is pumped when not
   */
  boolean beginCopies() {
    if (unmarked < 0 && nextGroup - firstGroup < MAX_GROUPS) {
      unmarked = ring.claimed();
    }
    return unmarked >= 0;
  }

  /**
   * Has the device copy from there, as much as there is room for.
   *
   * @return how many bytes; when it is 0, the connection is pumped once there is room
   * @throws FluxCclException if the device refuses
   */
  int copy(OwnedMemory source, long offset, long length) {
    long at = ring.claimed();
    long end = Math.min(length, Math.min(ring.room(), ring.inOnePiece(at)));
    int bytes = (int) Math.min(end, PIECE_LENGTH);
    starved = bytes == 0;
    if (starved || closed || !beginCopies()) {
      return 0;
    }
    stream.copy(ring.memory(), ring.index(at), source.buffer(), offset, bytes);
    ring.claim(bytes);
    if (ring.claimed() - unmarked >= PIECE_LENGTH) {
      mark();
    }
    return bytes;
  }

  /** Has the device say when the copies so far are done. */
  void mark() {
    if (unmarked >= 0 && !closed) {
      ring.mark(stream);
      int group = nextGroup++ & MAX_GROUPS - 1;
      groupStarts[group] = unmarked;
      groupMarks[group] = ring.claimed();
      unmarked = -1;
      poll.add(this);
    }
  }

  /** Gives the socket what is ready, as far as it takes it; returns whether there was anything. */
  boolean handOver(Channel channel) {
    long before = handedOver;
    long ready = closed ? handedOver : ready();
    while (handedOver < ready && channel.isWritable()) {
      long length = Math.min(ready - handedOver, ring.inOnePiece(handedOver));
      int bytes = (int) Math.min(length, MemoryWindow.MAX_LENGTH);
      MemoryWindow window = pool.window(ring.address(handedOver), bytes, released);
      lent++;
      handedOver += bytes;
      channel.write(window, channel.voidPromise());
    }
    return handedOver != before;
  }

  private long ready() {
    long passed = ring.passed();
    while (firstGroup != nextGroup && groupMarks[firstGroup & MAX_GROUPS - 1] <= passed) {
      firstGroup++;
    }
    if (firstGroup != nextGroup) {
      return groupStarts[firstGroup & MAX_GROUPS - 1];
    }
    return unmarked >= 0 ? unmarked : ring.claimed();
  }

  private void released(MemoryWindow window) {
    lent--;
    ring.releaseTo(ring.released() + window.capacity());
    if (closed) {
      closeUnused();
    } else if (starved) {
      starved = false;
      connection.pumpLater();
    }
  }

  @Override
  public boolean advance() {
    if (closed || groupMarks[firstGroup & MAX_GROUPS - 1] > ring.passed()) {
      return false;
    }
    // A socket that takes no more now says so when it does: that would be no progress here.
    long before = handedOver;
    connection.pump();
    return handedOver != before;
  }

  @Override
  public boolean isPending() {
    return !closed && firstGroup != nextGroup;
  }

  @Override
  public void failed(FluxCclException cause) {
    connection.stagingFailed(cause);
  }

  /** Lets go of the ring, as soon as the socket has. */
  void close() {
    if (!closed) {
      closed = true;
      closeUnused();
    }
  }

  private void closeUnused() {
    if (lent == 0) {
      ring.close();
    }
  }
}

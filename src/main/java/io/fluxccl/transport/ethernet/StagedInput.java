package io.fluxccl.transport.ethernet;

import io.fluxccl.FluxCclException;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceStream;
import io.netty.channel.EventLoop;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import org.agrona.DirectBuffer;

/**
 * What arrives, on whichever connection, for memory that sockets can't reach: payload lands in a
 * ring of pinned memory and is copied from there by one stream; a signal is stored by the same
 * stream behind the copies, which keeps it behind its data. An update takes 8 bytes of the ring
 * though nothing is put there: so a position says of updates, too, how far the stream has come.
 * Confined to the event loop, but for {@link #await}.
 */
final class StagedInput implements CopyPoll.Pending {
  static final int RING_LENGTH = 4 << 20;

  /** Sockets read to no less room than that. */
  static final int MIN_READ = 4096;

  private static final int CLOSED = Integer.MIN_VALUE;
  private static final int MARK_DISTANCE = 256 * 1024;
  private static final long CLOSE_NANOS = Duration.ofMillis(200).toNanos();

  private final StagingRing ring;
  private final DeviceStream stream;
  private final CopyPoll poll;
  private final EventLoop loop;
  private final List<InboundReader> waiting = new ArrayList<>();
  private long seen;
  private boolean closed;

  /** Threads in {@link #await}, the last of which lets go of the ring; negative once closed. */
  private final AtomicInteger awaiting = new AtomicInteger();

  StagedInput(Device device, DeviceStream stream, CopyPoll poll, EventLoop loop) {
    this.ring = new StagingRing(device, RING_LENGTH);
    this.stream = stream;
    this.poll = poll;
    this.loop = loop;
  }

  /** Where everything that arrived so far ends. */
  long position() {
    return ring.claimed();
  }

  /** Where the stream must have come to for half of the ring to be free. */
  long halfFree() {
    return ring.claimed() - RING_LENGTH / 2;
  }

  boolean hasPassed(long position) {
    return closed || ring.passed() >= position;
  }

  /** Points a window at room for a socket to read to; false if there is none. */
  boolean point(MemoryWindow window, long wanted) {
    if (closed) {
      return false;
    }
    if (ring.inOnePiece(ring.claimed()) < MIN_READ && room() >= 2 * MIN_READ) {
      ring.claim(ring.inOnePiece(ring.claimed()));
    }
    long at = ring.claimed();
    long available = Math.min(room(), ring.inOnePiece(at));
    if (available < MIN_READ) {
      return false;
    }
    long length = Math.min(wanted, available);
    window.point(ring.address(at), (int) Math.min(length, MemoryWindow.MAX_LENGTH));
    return true;
  }

  /**
   * So many bytes were read to where {@link #point} said.
   *
   * @throws FluxCclException if the device refuses the copy
   */
  void place(OwnedMemory target, long offset, int length) {
    long at = ring.claimed();
    stream.copy(target.buffer(), offset, ring.memory(), ring.index(at), length);
    ring.claim(length);
    placed(target);
  }

  /**
   * Places bytes that lie elsewhere.
   *
   * @return how many; less than {@code length} when there is no room for more
   * @throws FluxCclException if the device refuses the copy
   */
  int place(OwnedMemory target, long offset, DirectBuffer source, int index, int length) {
    int bytes = Math.min(length, room());
    for (int done = 0; done < bytes; ) {
      long at = ring.claimed();
      int piece = Math.min(bytes - done, ring.inOnePiece(at));
      ring.put(source, index + done, piece);
      stream.copy(target.buffer(), offset + done, ring.memory(), ring.index(at), piece);
      done += piece;
    }
    placed(target);
    return bytes;
  }

  /**
   * Stores a signal behind everything before it.
   *
   * @return false when there is no room
   * @throws FluxCclException if the device refuses
   */
  boolean update(OwnedMemory target, long offset, long value) {
    if (room() < Long.BYTES) {
      return false;
    }
    stream.writeValue(target.buffer(), offset, value);
    ring.claim(Long.BYTES);
    placed(target);
    return true;
  }

  private void placed(OwnedMemory target) {
    target.placedUpTo(ring.claimed());
    if (ring.claimed() - ring.marked() >= MARK_DISTANCE) {
      ring.mark(stream);
    }
  }

  /** Has the stream say when all that was placed so far is there; called at the end of a turn. */
  void mark() {
    if (!closed && ring.marked() != ring.claimed()) {
      ring.mark(stream);
    }
  }

  /** Calls the reader's {@link InboundReader#advance()} until it no longer waits. */
  void add(InboundReader reader) {
    if (!waiting.contains(reader)) {
      waiting.add(reader);
    }
    poll.add(this);
  }

  @Override
  public boolean advance() {
    long passed = ring.passed();
    if (passed == seen) {
      return false;
    }
    seen = passed;
    ring.releaseTo(passed);
    // Each once, in turn, so that none has the ring to itself; who still waits goes to the end.
    for (int left = waiting.size(); left > 0 && !waiting.isEmpty(); left--) {
      InboundReader reader = waiting.remove(0);
      if (reader.advance() && !waiting.contains(reader)) {
        waiting.add(reader);
      }
    }
    return true;
  }

  @Override
  public boolean isPending() {
    return !closed && !waiting.isEmpty();
  }

  @Override
  public void failed(FluxCclException cause) {
    List<InboundReader> failed = new ArrayList<>(waiting);
    waiting.clear();
    failed.forEach(reader -> reader.stagingFailed(cause));
  }

  /**
   * Waits a moment for the stream to come that far, so that what closes finds its memory at rest.
   * Called from any thread.
   */
  void await(long position) {
    if (loop.inEventLoop()) {
      mark();
    }
    if (awaiting.getAndIncrement() >= 0) {
      long deadline = System.nanoTime() + CLOSE_NANOS;
      while (ring.passed() < position && awaiting.get() > 0 && System.nanoTime() < deadline) {
        Thread.yield();
      }
    }
    if (awaiting.decrementAndGet() == CLOSED) {
      ring.close();
    }
  }

  /** Lets go of the ring; no socket may read any more. */
  void close() {
    closed = true;
    waiting.clear();
    if (awaiting.getAndAdd(CLOSED) == 0) {
      ring.close();
    }
  }

  private int room() {
    if (ring.room() < RING_LENGTH / 2) {
      ring.releaseTo(ring.passed());
    }
    return ring.room();
  }
}

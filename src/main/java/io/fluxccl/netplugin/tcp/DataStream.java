// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.tcp;

import io.fluxccl.transport.tcp.EndOfStream;
import io.fluxccl.transport.tcp.TcpSocket;
import io.fluxccl.wire.RawView;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.CancelledKeyException;
import java.nio.channels.SelectableChannel;
import java.nio.channels.SelectionKey;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * A socket that carries parts of messages and that an {@link IoThread} drives. The comm's thread
 * posts the parts, if the ring has room for them.
 */
class DataStream {
  /** The bytes that the stream moves at once before the thread serves its other streams. */
  private static final long TURN_BYTES = 4 << 20;

  private final TcpComm comm;
  private final TcpSocket socket;
  private final boolean sends;
  private final int mask;
  private final TcpRequest[] requests;
  private final long[] addresses;
  private final long[] lengths;

  /**
   * The number of parts that were posted. The comm's thread publishes it with a volatile write in
   * {@link #post}. The I/O thread reads it with acquire in {@link #work} and volatile in {@link
   * #hasWork}.
   */
  private final AtomicInteger posted = new AtomicInteger();

  private final RawView view = new RawView();

  /**
   * The number of parts that are moved. The I/O thread publishes it with release; pairs with the
   * acquire in {@link #hasRoom}.
   */
  private final AtomicInteger taken = new AtomicInteger();

  private long moved;
  private SelectionKey key;
  private IoThread thread;

  /**
   * Creates a stream, which {@link #movedBy} assigns to a thread.
   *
   * @param sends whether the socket sends parts, or else receives them
   * @param capacity the most parts at a time; a power of two
   */
  DataStream(TcpComm comm, TcpSocket socket, boolean sends, int capacity) {
    this.comm = comm;
    this.socket = socket;
    this.sends = sends;
    mask = capacity - 1;
    requests = new TcpRequest[capacity];
    addresses = new long[capacity];
    lengths = new long[capacity];
  }

  SelectableChannel channel() {
    return socket.channel();
  }

  /** Assigns the stream to an I/O thread. Called once, before the first part is posted. */
  void movedBy(IoThread ioThread) {
    thread = ioThread;
    ioThread.add(this);
  }

  /** Returns whether there is room for a part. Called from the comm's thread. */
  boolean hasRoom() {
    return posted.getPlain() - taken.getAcquire() <= mask;
  }

  /** Posts a part of a request to the I/O thread. Called from the comm's thread. */
  void post(TcpRequest request, long address, long length) {
    int index = posted.getPlain();
    requests[index & mask] = request;
    addresses[index & mask] = address;
    lengths[index & mask] = length;
    // Volatile, and IoThread.asleep is volatile, too: either the I/O thread sees the part in
    // hasWork() before it sleeps, or wake() sees that it sleeps.
    posted.set(index + 1);
    thread.wake();
  }

  /**
   * Returns whether there is a part to move. Volatile read; pairs with the write in {@link #post}.
   */
  boolean hasWork() {
    return taken.getPlain() != posted.get();
  }

  /**
   * Moves as many bytes as the socket can send or receive now. Called from the I/O thread.
   *
   * @return 0 if nothing moved
   */
  long work() {
    long progress = 0;
    try {
      while (progress < TURN_BYTES && taken.getPlain() != posted.getAcquire()) {
        int slot = taken.getPlain() & mask;
        ByteBuffer part = view.point(addresses[slot] + moved, lengths[slot] - moved);
        int n = part.hasRemaining() ? move(part) : 0;
        moved += n;
        progress += n;
        if (moved < lengths[slot]) {
          break;
        }
        TcpRequest request = requests[slot];
        requests[slot] = null;
        taken.setRelease(taken.getPlain() + 1);
        request.partDone();
        moved = 0;
        progress++;
      }
    } catch (IOException e) {
      failed(e);
    } catch (RuntimeException e) {
      // An engine of TLS may throw one; the thread serves other connections, too.
      failed(new IOException(e.toString(), e));
    }
    return progress;
  }

  private int move(ByteBuffer part) throws IOException {
    int n = sends ? socket.write(part) : socket.read(part);
    if (n < 0) {
      throw new EndOfStream();
    }
    return n;
  }

  /** Sets the operation that the thread's selector waits for. Called from the I/O thread. */
  void interest() {
    if (key == null || !key.isValid()) {
      return;
    }
    try {
      int wanted = hasWork() ? (sends ? SelectionKey.OP_WRITE : SelectionKey.OP_READ) : 0;
      if (key.interestOps() != wanted) {
        key.interestOps(wanted);
      }
    } catch (CancelledKeyException e) {
      // The socket was closed at this moment; the thread removes the stream later.
      return;
    }
  }

  /** Sets the socket's key in the thread's selector. Called from the I/O thread. */
  void key(SelectionKey registered) {
    key = registered;
  }

  /**
   * Discards the posted parts and fails the comm. Called from the I/O thread, or, if that has
   * ended, from the thread that adds the stream.
   */
  void failed(IOException e) {
    // A part that the comm's thread posts at this moment has moved no bytes.
    moved = 0;
    taken.setRelease(posted.getAcquire());
    comm.streamFailed(e);
  }

  /** Closes the socket. When this returns, no thread accesses the memory of its parts any more. */
  void close() {
    // The JDK waits for a read or write in progress, which does not block.
    socket.close();
    thread.remove(this);
  }
}

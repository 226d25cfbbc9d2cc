package io.fluxccl.netplugin.tcp;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.CancelledKeyException;
import java.nio.channels.SelectionKey;
import java.nio.channels.SocketChannel;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * A socket that carries parts of messages, moved by an {@link IoThread}. Parts are posted by the
 * comm's thread; there are never more than the comm has requests, so the ring has room.
 */
final class DataStream {
  /** As many bytes in a row before other streams of the thread get their turn. */
  private static final long TURN_BYTES = 4 << 20;

  private final TcpComm comm;
  private final SocketChannel channel;
  private final boolean sends;
  private final int mask;
  private final TcpRequest[] requests;
  private final long[] addresses;
  private final long[] lengths;

  /** Published by the comm's thread with release; read by the I/O thread with acquire. */
  private final AtomicInteger posted = new AtomicInteger();

  private final RawView view = new RawView();
  private int taken;
  private long moved;
  private SelectionKey key;
  private IoThread thread;

  /**
   * @param capacity the most parts at a time; a power of two
   */
  DataStream(TcpComm comm, SocketChannel channel, boolean sends, int capacity) {
    this.comm = comm;
    this.channel = channel;
    this.sends = sends;
    mask = capacity - 1;
    requests = new TcpRequest[capacity];
    addresses = new long[capacity];
    lengths = new long[capacity];
  }

  SocketChannel channel() {
    return channel;
  }

  /** Called once, before anything is posted. */
  void movedBy(IoThread ioThread) {
    thread = ioThread;
    ioThread.add(this);
  }

  /** Hands over a part of a request. Called from the comm's thread. */
  void post(TcpRequest request, long address, long length) {
    int index = posted.getPlain();
    requests[index & mask] = request;
    addresses[index & mask] = address;
    lengths[index & mask] = length;
    // Volatile, as what the I/O thread says of its sleep: one of the two sees the other.
    posted.set(index + 1);
    thread.wake();
  }

  /** Whether there is a part to move; volatile, pairs with {@link #post}. */
  boolean hasWork() {
    return taken != posted.get();
  }

  /**
   * Moves what the socket takes or has. Called from the I/O thread.
   *
   * @return 0 if nothing moved
   */
  long work() {
    long progress = 0;
    try {
      while (progress < TURN_BYTES && taken != posted.getAcquire()) {
        int slot = taken & mask;
        ByteBuffer part = view.point(addresses[slot] + moved, lengths[slot] - moved);
        int n = part.hasRemaining() ? move(part) : 0;
        moved += n;
        progress += n;
        if (moved < lengths[slot]) {
          break;
        }
        requests[slot].partDone();
        if (requests[slot].isDone()) {
          comm.requestDone();
        }
        requests[slot] = null;
        taken++;
        moved = 0;
        progress++;
      }
    } catch (IOException e) {
      failed(e);
    }
    return progress;
  }

  private int move(ByteBuffer part) throws IOException {
    int n = sends ? channel.write(part) : channel.read(part);
    if (n < 0) {
      throw new EndOfStream();
    }
    return n;
  }

  /** Says what the thread's selector is to wait for. Called from the I/O thread. */
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
      // Closed at this moment; it will be removed.
      return;
    }
  }

  /** Called from the I/O thread. */
  void key(SelectionKey registered) {
    key = registered;
  }

  /** Gives up what was posted. Called from the I/O thread. */
  void failed(IOException e) {
    taken = posted.getAcquire();
    comm.streamFailed(e);
  }

  /** Closes the socket; when this returns nobody touches the memory of its parts any more. */
  void close() {
    // The JDK waits for a read or write in progress, which does not block.
    Sockets.close(channel);
    thread.remove(this);
  }
}

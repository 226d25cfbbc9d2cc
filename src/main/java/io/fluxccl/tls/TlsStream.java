// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.tls;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLEngineResult;
import javax.net.ssl.SSLEngineResult.Status;
import javax.net.ssl.SSLException;

/**
 * The TLS records of a socket that does not block. Used by one thread at a time. Reads and writes
 * do not block, like those of the socket: they transfer the bytes that are possible now. Bytes
 * count as written once the system has accepted their records.
 */
public final class TlsStream {
  /** Records that are written or read with one system call. */
  private static final int RECORDS = 4;

  private static final ByteBuffer NOTHING = ByteBuffer.allocate(0);

  private final SocketChannel channel;
  private final SSLEngine engine;

  /** Received records that are not decrypted yet; always flipped for reading. */
  private final ByteBuffer arrived;

  /** Decrypted bytes that did not fit in the last reader's buffer; always flipped for reading. */
  private final ByteBuffer plain;

  /** Records that the system has not accepted yet; always flipped for reading. */
  private final ByteBuffer leaving;

  /** The bytes within {@link #leaving}, not reported as written. */
  private int unreported;

  /**
   * Begins TLS on a socket.
   *
   * @param channel a connected socket, non-blocking; the caller closes it
   * @param engine of {@link Tls#connecting} or {@link Tls#accepting}
   * @throws SSLException if the engine can't begin
   */
  public TlsStream(SocketChannel channel, SSLEngine engine) throws SSLException {
    this.channel = channel;
    this.engine = engine;
    int record = engine.getSession().getPacketBufferSize();
    arrived = ByteBuffer.allocateDirect(RECORDS * record).limit(0);
    leaving = ByteBuffer.allocateDirect(RECORDS * record).limit(0);
    plain = ByteBuffer.allocateDirect(engine.getSession().getApplicationBufferSize()).limit(0);
    engine.beginHandshake();
  }

  /** Returns the engine, for the peer's certificate. */
  public SSLEngine engine() {
    return engine;
  }

  /**
   * Advances the handshake as far as possible without blocking.
   *
   * @return whether it is complete
   * @throws IOException if the peer has closed the socket, or can't be trusted
   */
  public boolean handshake() throws IOException {
    while (true) {
      switch (engine.getHandshakeStatus()) {
        case NEED_TASK -> runTasks();
        case NEED_WRAP -> {
          if (!flush()) {
            return false;
          }
          say();
        }
        case NEED_UNWRAP, NEED_UNWRAP_AGAIN -> {
          if (!flush() || !readHandshake()) {
            return false;
          }
        }
        default -> {
          return flush();
        }
      }
    }
  }

  private void runTasks() {
    for (Runnable task = engine.getDelegatedTask();
        task != null;
        task = engine.getDelegatedTask()) {
      task.run();
    }
  }

  /** Appends a handshake record to the records to send. */
  private void say() throws SSLException {
    leaving.compact();
    engine.wrap(NOTHING, leaving);
    leaving.flip();
  }

  /** Processes a handshake record; returns false if none has arrived. */
  private boolean readHandshake() throws IOException {
    plain.clear();
    SSLEngineResult result = engine.unwrap(arrived, plain);
    plain.flip();
    if (result.getStatus() == Status.CLOSED) {
      throw new SSLException("it has closed the connection");
    }
    if (result.getStatus() != Status.BUFFER_UNDERFLOW) {
      return true;
    }
    int n = fill();
    if (n < 0) {
      throw new SSLException("it closed the socket during the handshake");
    }
    return n > 0;
  }

  private int fill() throws IOException {
    arrived.compact();
    try {
      return channel.read(arrived);
    } finally {
      arrived.flip();
    }
  }

  /** Passes records to the system; returns whether it has accepted all. */
  private boolean flush() throws IOException {
    while (leaving.hasRemaining()) {
      if (channel.write(leaving) == 0) {
        return false;
      }
    }
    return true;
  }

  /**
   * Reads the received bytes into a buffer. If the buffer is not filled, the socket is empty.
   *
   * @param to receives the bytes
   * @return the number of bytes; -1 if the peer has closed its side
   * @throws IOException if the socket has failed, or a record is not authentic
   */
  public int read(ByteBuffer to) throws IOException {
    int begin = to.position();
    while (to.hasRemaining()) {
      if (plain.hasRemaining()) {
        copyPlain(to);
      } else if (!decrypt(to)) {
        int n = fill();
        if (n <= 0) {
          return n < 0 && to.position() == begin ? -1 : to.position() - begin;
        }
      }
    }
    return to.position() - begin;
  }

  private void copyPlain(ByteBuffer to) {
    int n = Math.min(plain.remaining(), to.remaining());
    int limit = plain.limit();
    to.put(plain.limit(plain.position() + n));
    plain.limit(limit);
  }

  /**
   * Decrypts a record into the buffer if that is large enough, otherwise into {@link #plain};
   * returns false if no complete record has arrived.
   */
  private boolean decrypt(ByteBuffer to) throws IOException {
    boolean inPlace = to.remaining() >= plain.capacity();
    SSLEngineResult result;
    if (inPlace) {
      result = engine.unwrap(arrived, to);
    } else {
      plain.clear();
      try {
        result = engine.unwrap(arrived, plain);
      } finally {
        plain.flip();
      }
    }
    switch (result.getHandshakeStatus()) {
      case NEED_TASK -> runTasks();
      case NEED_WRAP -> { // new keys
        say();
        flush();
      }
      default -> {
        // The handshake is over.
      }
    }
    return result.getStatus() == Status.OK;
  }

  /**
   * Writes the bytes of buffers. The next call must begin with the first byte that is not reported
   * as written.
   *
   * @param from the buffers, whose positions after the call do not matter
   * @param count the number of buffers
   * @return the number of bytes written
   * @throws IOException if the socket has failed
   */
  public long write(ByteBuffer[] from, int count) throws IOException {
    if (!flush()) {
      return 0;
    }
    long written = unreported;
    skip(from, count, unreported);
    unreported = 0;
    int first = 0;
    while (true) {
      while (first < count && !from[first].hasRemaining()) {
        first++;
      }
      if (first == count) {
        return written;
      }
      int encrypted = encrypt(from, first, count - first);
      if (!flush()) {
        unreported = encrypted;
        return written;
      }
      written += encrypted;
    }
  }

  private int encrypt(ByteBuffer[] from, int first, int count) throws SSLException {
    int record = engine.getSession().getPacketBufferSize();
    int encrypted = 0;
    leaving.clear();
    try {
      while (from[first + count - 1].hasRemaining() && leaving.remaining() >= record) {
        int n = engine.wrap(from, first, count, leaving).bytesConsumed();
        if (n == 0) {
          throw new SSLException("the connection is closed");
        }
        encrypted += n;
      }
    } finally {
      leaving.flip();
    }
    return encrypted;
  }

  private static void skip(ByteBuffer[] from, int count, long bytes) {
    long left = bytes;
    for (int i = 0; i < count && left > 0; i++) {
      int n = (int) Math.min(left, from[i].remaining());
      from[i].position(from[i].position() + n);
      left -= n;
    }
  }
}

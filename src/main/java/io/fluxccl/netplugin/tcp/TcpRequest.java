// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.tcp;

import io.fluxccl.netplugin.NetRequest;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;

/**
 * A send or receive. Its comm has a fixed number of requests and reuses them in turn. Only the
 * comm's thread uses a request, except that I/O threads call {@link #partDone} and {@link #isDone}.
 * Any thread may read its state for the table of connections.
 */
final class TcpRequest implements NetRequest {
  private static final VarHandle PARTS;

  static {
    try {
      PARTS = MethodHandles.lookup().findVarHandle(TcpRequest.class, "parts", int.class);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  private final TcpComm comm;

  /** The number of parts that are not done, including the part on stream 0. */
  @SuppressWarnings("unused")
  private volatile int parts;

  /** Whether the request was posted and no test has found it done or failed yet. */
  private boolean inFlight;

  /** Whether the message of a receive has begun to arrive. */
  private boolean matched;

  private long address;
  private long size;

  /** The bytes that a receive has room for: at most as many as are registered. */
  private long room;

  private int tag;
  private long postedNanos;

  TcpRequest(TcpComm comm) {
    this.comm = comm;
  }

  void post(long address, long size, int tag, long nowNanos) {
    this.address = address;
    this.size = size;
    this.tag = tag;
    this.postedNanos = nowNanos;
    PARTS.setOpaque(this, 1);
    matched = false;
    inFlight = true;
  }

  long address() {
    return address;
  }

  /** Returns the bytes to send, or the room of a receive until {@link #arrives}. */
  long size() {
    return size;
  }

  void limitTo(long bytes) {
    room = bytes;
  }

  long room() {
    return room;
  }

  int tag() {
    return tag;
  }

  long postedNanos() {
    return postedNanos;
  }

  boolean isInFlight() {
    return inFlight;
  }

  void arrives(long bytes) {
    size = bytes;
    matched = true;
  }

  /** Records that the rest of the message will not arrive. */
  void tears() {
    matched = false;
  }

  /** Returns whether the message has begun to arrive, but not all of its bytes have. */
  boolean isArriving() {
    return inFlight && matched && !isDone();
  }

  /** Ends the request, because it has failed. */
  void abandon() {
    inFlight = false;
  }

  /** Adds parts to be done. Called before any part is posted to an I/O thread. */
  void addParts(int more) {
    PARTS.setOpaque(this, (int) PARTS.getOpaque(this) + more);
  }

  /**
   * Counts a part as done: its bytes were moved. Release; pairs with the acquire in {@link
   * #isDone}.
   */
  void partDone() {
    PARTS.getAndAddRelease(this, -1);
  }

  /** Returns whether all parts are done. Acquire; pairs with the release in {@link #partDone}. */
  boolean isDone() {
    return (int) PARTS.getAcquire(this) == 0;
  }

  @Override
  public boolean test() {
    if (!isDone()) {
      comm.progress();
      if (!isDone()) {
        comm.checkWait(this);
        return false;
      }
    }
    if (inFlight) {
      comm.ended();
      finish();
    }
    return true;
  }

  /** Ends the request, which is done. */
  void finish() {
    inFlight = false;
    comm.completed(this);
  }

  @Override
  public long size(int index) {
    return size;
  }
}

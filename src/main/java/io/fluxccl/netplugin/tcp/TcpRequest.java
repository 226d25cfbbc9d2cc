package io.fluxccl.netplugin.tcp;

import io.fluxccl.netplugin.BodyPlace;
import io.fluxccl.netplugin.NetRequest;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;

/**
 * A send or receive. Its comm has a fixed number of them and uses them in turn. Used by the comm's
 * thread; I/O threads say when their parts are done.
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

  /** How many parts are not done, the message itself included. */
  @SuppressWarnings("unused")
  private volatile int parts;

  /** From being posted until a test said that it is over. */
  private boolean inFlight;

  /** Of a receive: its message has come, and is being moved. */
  private boolean matched;

  private long address;
  private long size;
  private long bodyAddress;
  private long bodySize;

  /** Chooses where the body of a receive goes, or null for a receive without one. */
  private BodyPlace place;

  private int tag;
  private long postedNanos;

  TcpRequest(TcpComm comm) {
    this.comm = comm;
  }

  void post(long address, long size, int tag, long nowNanos) {
    this.address = address;
    this.size = size;
    this.bodySize = 0;
    this.place = null;
    this.tag = tag;
    this.postedNanos = nowNanos;
    PARTS.setOpaque(this, 1);
    matched = false;
    inFlight = true;
  }

  long address() {
    return address;
  }

  /** Bytes to send, or the room of a receive until {@link #arrives}; without the body. */
  long size() {
    return size;
  }

  /** Sets the body of a send, or that of a receive once its place is known. */
  void body(long bodyAt, long bytes) {
    bodyAddress = bodyAt;
    bodySize = bytes;
  }

  long bodyAddress() {
    return bodyAddress;
  }

  /** Bytes of the body; 0 for a message without one. */
  long bodySize() {
    return bodySize;
  }

  void placedBy(BodyPlace chooser) {
    place = chooser;
  }

  BodyPlace place() {
    return place;
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

  void arrives(long bytes, long bodyBytes) {
    size = bytes;
    bodySize = bodyBytes;
    matched = true;
  }

  /** The rest of its message will not come. */
  void tears() {
    matched = false;
  }

  /** Whether its message has come, but not all of its bytes. */
  boolean isArriving() {
    return inFlight && matched && !isDone();
  }

  /** It has failed. */
  void abandon() {
    inFlight = false;
  }

  /** Before any part is handed to an I/O thread. */
  void addParts(int more) {
    PARTS.setOpaque(this, (int) PARTS.getOpaque(this) + more);
  }

  /** The bytes of a part are where they belong; release, pairs with {@link #isDone}. */
  void partDone() {
    PARTS.getAndAddRelease(this, -1);
  }

  /** Acquire; pairs with {@link #partDone}. */
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
      inFlight = false;
      comm.completed(this);
    }
    return true;
  }

  @Override
  public long size(int index) {
    return size;
  }
}

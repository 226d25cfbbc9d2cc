package io.fluxccl.netplugin.ib;

import io.fluxccl.netplugin.NetRequest;

/**
 * A send or receive. Its comm has a fixed number of them and uses them in turn. Used by the comm's
 * thread.
 */
final class IbNetRequest implements NetRequest {
  private final IbNetComm comm;

  /** From being posted until a test said that it is over. */
  private boolean inFlight;

  private boolean done;
  private long address;
  private long size;
  private int key;
  private long postedNanos;

  IbNetRequest(IbNetComm comm) {
    this.comm = comm;
  }

  void post(long where, long bytes, int localKey, long nowNanos) {
    address = where;
    size = bytes;
    key = localKey;
    postedNanos = nowNanos;
    done = false;
    inFlight = true;
  }

  long address() {
    return address;
  }

  /** Bytes to send, or the room of a receive until it is done. */
  long size() {
    return size;
  }

  /** The registration's, by which this end names the memory. */
  int key() {
    return key;
  }

  long postedNanos() {
    return postedNanos;
  }

  boolean isInFlight() {
    return inFlight;
  }

  boolean isDone() {
    return done;
  }

  void finish(long bytes) {
    size = bytes;
    done = true;
  }

  /** It has failed. */
  void abandon() {
    inFlight = false;
  }

  @Override
  public boolean test() {
    if (!done) {
      comm.advance(this);
    }
    if (done && inFlight) {
      inFlight = false;
      comm.completed(this);
    }
    return done;
  }

  @Override
  public long size(int index) {
    return size;
  }
}

package io.fluxccl.netplugin;

import io.fluxccl.InvalidUsage;

/** A request of a checked connection; used again after it was done. */
final class CheckedRequest implements NetRequest {
  private final CheckedComm comm;

  /** How much room there is for each of a group; of a send or a flush there is none. */
  private final long[] room;

  private int n;
  private NetRequest request;
  private boolean inFlight;
  private int place;

  CheckedRequest(CheckedComm comm, int group) {
    this.comm = comm;
    this.room = new long[group];
  }

  /** Nothing, or not known yet, is going to be received. */
  void clear() {
    n = 0;
  }

  /** What is going to be received, one after the other. */
  void expect(long size) {
    room[n++] = size;
  }

  void start(NetRequest started, int index) {
    request = started;
    inFlight = true;
    place = index;
  }

  /** Where the comm keeps it. */
  int place() {
    return place;
  }

  void move(int index) {
    place = index;
  }

  @Override
  public boolean test() {
    comm.requireOpen("test");
    if (!inFlight) {
      throw new InvalidUsage("test of a request of " + comm + " that is over already");
    }
    boolean done = false;
    boolean failed = true;
    try {
      done = request.test();
      failed = false;
    } finally {
      if (done || failed) {
        inFlight = false;
        comm.free(this);
      }
    }
    if (done) {
      checkSizes();
    }
    return done;
  }

  private void checkSizes() {
    for (int i = 0; i < n; i++) {
      if (request.size(i) < 0 || request.size(i) > room[i]) {
        throw InvalidUsage.of(
            "a receive of %s got %s bytes, and had room for %s", comm, request.size(i), room[i]);
      }
    }
  }

  @Override
  public long size(int index) {
    if (inFlight || index < 0 || index >= Math.max(1, room.length)) {
      throw InvalidUsage.of(
          "size of index=%s%s",
          index, inFlight ? " of a request in flight; test it first" : "; that is no index");
    }
    return request.size(index);
  }
}

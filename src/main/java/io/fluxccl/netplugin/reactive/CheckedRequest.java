// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.reactive;

import io.fluxccl.InvalidUsage;
import io.fluxccl.netplugin.NetMisuse;
import io.fluxccl.netplugin.NetRequest;

/** A request of a checked connection. The comm reuses the object after the request is done. */
final class CheckedRequest implements NetRequest {
  private final CheckedComm comm;

  /** The bytes of room for each message of a group of receives; unused in a send or a flush. */
  private final long[] room;

  private int n;
  private NetRequest request;
  private boolean inFlight;
  private int place;

  CheckedRequest(CheckedComm comm, int group) {
    this.comm = comm;
    this.room = new long[group];
  }

  /** Forgets the sizes of the earlier operation. */
  void clear() {
    n = 0;
  }

  /** Adds the bytes of room for the next message of the receive. */
  void expect(long size) {
    room[n++] = size;
  }

  void start(NetRequest started, int index) {
    request = started;
    inFlight = true;
    place = index;
  }

  /** Returns the request's index in the comm's array. */
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
      throw new NetMisuse("test of a request of " + comm + " that is over already");
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
      throw NetMisuse.of(
          "size of index=%s%s",
          index, inFlight ? " of a request in flight; test it first" : "; that is no index");
    }
    return request.size(index);
  }
}

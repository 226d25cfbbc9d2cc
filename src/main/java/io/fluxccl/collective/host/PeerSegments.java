package io.fluxccl.collective.host;

import io.fluxccl.DeviceFailure;
import io.fluxccl.TransportFailure;
import io.fluxccl.device.host.SharedSegment;

/**
 * The memory of one peer that one strand reaches because the peer has shown it, not registered it.
 * Mapped at the first use, and kept for the next: the segments used last, until their owner has
 * closed them and shows another, or all of them are let go. Used by one thread at a time.
 */
final class PeerSegments {
  /** What is kept mapped. */
  static final int MOST = 8;

  private final int peer;
  private final boolean sameProcess;

  /** With a user each, unless they are of this process: those their owner may free meanwhile. */
  private final SharedSegment[] kept = new SharedSegment[MOST];

  private final long[] usedAt = new long[MOST];
  private long uses;

  /**
   * None yet.
   *
   * @param peer whose
   * @param sameProcess whether it is a rank of this process
   */
  PeerSegments(int peer, boolean sameProcess) {
    this.peer = peer;
    this.sameProcess = sameProcess;
  }

  /**
   * The segment that a place is in.
   *
   * @param shown what the peer showed
   * @param bytes of which use will be made
   * @return the segment, with one more user
   * @throws TransportFailure if the peer's segment has fewer bytes, or it has closed it
   * @throws DeviceFailure if the segment can't be mapped
   */
  SharedSegment use(Shown shown, long bytes) {
    if (!shown.holds(bytes)) {
      throw new TransportFailure(
          peer, bytes + " bytes from " + shown + " of rank " + peer + " were asked for");
    }
    SharedSegment segment = find(shown);
    if (!segment.tryRetain()) {
      throw closed();
    }
    return segment;
  }

  private TransportFailure closed() {
    return new TransportFailure(peer, "rank " + peer + " has closed a buffer that is in use");
  }

  private SharedSegment find(Shown shown) {
    int oldest = 0;
    for (int i = 0; i < MOST; i++) {
      SharedSegment segment = kept[i];
      if (segment != null && shown.liesIn(segment.name()) && segment.users() > 0) {
        usedAt[i] = ++uses;
        return segment;
      }
      if (usedAt[i] < usedAt[oldest]) {
        oldest = i;
      }
    }
    SharedSegment segment = open(shown);
    forget(oldest);
    kept[oldest] = segment;
    usedAt[oldest] = ++uses;
    return segment;
  }

  private SharedSegment open(Shown shown) {
    if (sameProcess) {
      SharedSegment segment = SharedSegment.retainOwned(shown.name()).orElseThrow(this::closed);
      segment.release();
      return segment;
    }
    for (int i = 0; i < MOST; i++) {
      if (kept[i] != null && !SharedSegment.isOpen(kept[i].name())) {
        forget(i);
      }
    }
    // While a file is mapped nobody else gets its inode: a name never means two segments here.
    return SharedSegment.open(shown.name());
  }

  private void forget(int i) {
    if (kept[i] != null && !sameProcess) {
      kept[i].release();
    }
    kept[i] = null;
    usedAt[i] = 0;
  }

  /** How many are kept. */
  int size() {
    int size = 0;
    for (SharedSegment segment : kept) {
      size += segment == null ? 0 : 1;
    }
    return size;
  }

  /** Lets go of all. */
  void close() {
    for (int i = 0; i < MOST; i++) {
      forget(i);
    }
  }
}

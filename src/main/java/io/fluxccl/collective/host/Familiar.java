package io.fluxccl.collective.host;

import io.fluxccl.device.host.SegmentName;

/**
 * The segments that a rank used last in large calls with one peer. Only what is used again is shown
 * to the peer, because mapping costs more than the pipe does once.
 */
final class Familiar {
  private final SegmentName[] known = new SegmentName[PeerSegments.MOST];
  private int next;

  /** Whether it was used before, as far as that is remembered; it is from now on. */
  boolean is(SegmentName name) {
    for (SegmentName each : known) {
      if (name.equals(each)) {
        return true;
      }
    }
    known[next] = name;
    next = (next + 1) % known.length;
    return false;
  }
}

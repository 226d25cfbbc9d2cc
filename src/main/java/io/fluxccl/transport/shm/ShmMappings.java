package io.fluxccl.transport.shm;

import io.fluxccl.device.host.SegmentName;
import io.fluxccl.device.host.SharedSegment;
import java.util.HashMap;
import java.util.Map;

/**
 * The segments of other processes that one context has mapped, each once however many memories lie
 * in it, until the last of them is let go. Thread-safe.
 */
final class ShmMappings {
  /** Guarded by this; so are the segments' users, all of which are made here. */
  private final Map<SegmentName, SharedSegment> mapped = new HashMap<>();

  synchronized SharedSegment acquire(SegmentName name) {
    SharedSegment segment = mapped.get(name);
    if (segment == null) {
      segment = SharedSegment.open(name);
      mapped.put(name, segment);
    } else {
      segment.retain();
    }
    return segment;
  }

  synchronized void release(SharedSegment segment) {
    if (segment.users() == 1) {
      mapped.remove(segment.name());
    }
    segment.release();
  }

  synchronized int count() {
    return mapped.size();
  }
}

package io.fluxccl.collective;

import io.fluxccl.device.DeviceBuffer;
import java.util.ArrayList;
import java.util.List;

/** The buffers that are registered with a lane. Looked up for each call; changed rarely. */
final class Registrations {
  // Replaced as a whole, so that who looks up takes no lock.
  private volatile List<Registration> open = List.of();

  synchronized void add(Registration registration) {
    List<Registration> more = new ArrayList<>(open);
    more.add(registration);
    open = List.copyOf(more);
  }

  synchronized boolean remove(Registration registration) {
    List<Registration> fewer = new ArrayList<>(open);
    boolean removed = fewer.remove(registration);
    open = List.copyOf(fewer);
    return removed;
  }

  boolean has(Registration registration) {
    return open.contains(registration);
  }

  /** The first made registration that holds a buffer; null if there is none. */
  Registration of(DeviceBuffer buffer) {
    if (buffer != null) {
      List<Registration> now = open;
      for (int i = 0; i < now.size(); i++) {
        if (now.get(i).holds(buffer)) {
          return now.get(i);
        }
      }
    }
    return null;
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device;

import io.fluxccl.Experimental;
import java.util.ArrayList;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Set;

/** The buffers that a recorded graph retains, each once. Not thread-safe. */
@Experimental
public final class RetainedBuffers {
  private final Set<DeviceBuffer> buffers = Collections.newSetFromMap(new IdentityHashMap<>());

  /** Creates an empty set. */
  public RetainedBuffers() {}

  /**
   * Retains a buffer, if it is not retained already.
   *
   * @param buffer the buffer to retain
   * @throws io.fluxccl.InvalidUsage if it is closed
   */
  public void add(DeviceBuffer buffer) {
    if (!buffers.contains(buffer)) {
      buffer.retain();
      buffers.add(buffer);
    }
  }

  /** Releases them all. Idempotent. */
  public void release() {
    List<DeviceBuffer> toRelease = new ArrayList<>(buffers);
    buffers.clear();
    toRelease.forEach(DeviceBuffer::release);
  }
}

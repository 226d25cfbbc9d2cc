// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.ib.disni;

import io.fluxccl.TransportFailure;
import io.fluxccl.transport.ib.VerbsMemory;
import java.io.IOException;
import java.util.concurrent.atomic.AtomicBoolean;

/** A memory region that is registered with a device. */
final class DisniMemory implements VerbsMemory {
  /** Ends a registration. */
  interface Deregistration {
    void run() throws IOException;
  }

  private final int localKey;
  private final int remoteKey;
  private final Deregistration deregistration;
  private final AtomicBoolean closed = new AtomicBoolean();

  DisniMemory(int localKey, int remoteKey, Deregistration deregistration) {
    this.localKey = localKey;
    this.remoteKey = remoteKey;
    this.deregistration = deregistration;
  }

  @Override
  public int localKey() {
    return localKey;
  }

  @Override
  public int remoteKey() {
    return remoteKey;
  }

  @Override
  public void close() {
    if (closed.compareAndSet(false, true)) {
      try {
        deregistration.run();
      } catch (IOException e) {
        throw new TransportFailure(
            TransportFailure.NO_RANK, "memory can't be deregistered: " + e.getMessage(), e);
      }
    }
  }
}

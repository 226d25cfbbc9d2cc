package io.fluxccl.transport.ib.disni;

import com.ibm.disni.verbs.IbvMr;
import io.fluxccl.TransportFailure;
import io.fluxccl.transport.ib.VerbsMemory;
import java.io.IOException;
import java.util.concurrent.atomic.AtomicBoolean;

/** A memory region that is registered through DiSNI. */
final class DisniMemory implements VerbsMemory {
  private final IbvMr region;
  private final AtomicBoolean closed = new AtomicBoolean();

  DisniMemory(IbvMr region) {
    this.region = region;
  }

  @Override
  public int localKey() {
    return region.getLkey();
  }

  @Override
  public int remoteKey() {
    return region.getRkey();
  }

  @Override
  public void close() {
    if (closed.compareAndSet(false, true)) {
      try {
        region.deregMr().execute().free();
      } catch (IOException e) {
        throw new TransportFailure(
            TransportFailure.NO_RANK, "memory can't be deregistered: " + e.getMessage(), e);
      }
    }
  }
}

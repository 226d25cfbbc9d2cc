package io.fluxccl.collective;

import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.transport.RegisteredMemory;
import java.util.function.Consumer;

/**
 * A buffer that every rank has registered with a {@link Collectives}: algorithms may read and write
 * it, and any part of it, in place on every rank. A call uses it when its buffer lies in it; on all
 * ranks at the same offset, in the registrations made by the same call. In place, that is the
 * offset of the whole of which a rank has its share. A send-receive, and a buffer that only the
 * root has, may use any or none.
 */
public final class Registration implements AutoCloseable {
  private final int id;
  private final DeviceBuffer buffer;
  private final RegisteredMemory[] memories;
  private final long[] addresses;
  private final Consumer<Registration> onClose;

  /**
   * Of memories that are known.
   *
   * @param memories by rank
   * @param onClose called whenever this is closed
   */
  Registration(
      int id, DeviceBuffer buffer, RegisteredMemory[] memories, Consumer<Registration> onClose) {
    this.id = id;
    this.buffer = buffer;
    this.memories = memories;
    this.addresses = new long[memories.length];
    this.onClose = onClose;
    for (int rank = 0; rank < addresses.length; rank++) {
      addresses[rank] = memories[rank].isMapped() ? memories[rank].address() : 0;
    }
  }

  /** The same on every rank: registrations are counted from 0. */
  public int id() {
    return id;
  }

  /** This rank's buffer. */
  public DeviceBuffer buffer() {
    return buffer;
  }

  /**
   * Where this rank and its kernels reach a rank's buffer.
   *
   * @param rank whose
   * @return the address, or 0 if that rank's memory can't be mapped
   */
  public long addressOn(int rank) {
    return addresses[rank];
  }

  RegisteredMemory[] memories() {
    return memories;
  }

  boolean holds(DeviceBuffer part) {
    return part.address() >= buffer.address()
        && part.address() + part.size() <= buffer.address() + buffer.size();
  }

  /**
   * Calls go through the library's own memory again, behind the work already enqueued. To be closed
   * on every rank between the same calls. The buffer stays the caller's. Idempotent.
   */
  @Override
  public void close() {
    onClose.accept(this);
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.transport.RegisteredMemory;
import java.util.Arrays;
import java.util.Optional;
import java.util.function.Consumer;

/**
 * A buffer that every rank has registered with a {@link Collectives}: algorithms may read and write
 * any part of it directly on every rank. A call uses the registration that holds its buffer. That
 * must be the same registration on all ranks, and the same offset in it; of a share that is in
 * place, the offset of the whole. A send-receive, and a buffer that only the root has, may use any
 * registration or none.
 */
public final class Registration implements AutoCloseable {
  private final int id;
  private final DeviceBuffer buffer;
  private final RegisteredMemory[] memories;
  private final long[] addresses;
  private final String staged;
  private final Consumer<Registration> onClose;

  /**
   * Creates a registration of exchanged memories.
   *
   * @param memories by rank
   * @param onClose called whenever this is closed
   */
  Registration(
      int id, DeviceBuffer buffer, RegisteredMemory[] memories, Consumer<Registration> onClose) {
    this(
        id,
        buffer,
        memories,
        Arrays.stream(memories)
            .mapToLong(memory -> memory.isMapped() ? memory.address() : 0)
            .toArray(),
        null,
        onClose);
  }

  /**
   * Creates a registration of a buffer that some rank can't share.
   *
   * @param reason why, and which rank
   */
  static Registration staged(int id, DeviceBuffer buffer, int nRanks, String reason) {
    return new Registration(id, buffer, new RegisteredMemory[0], new long[nRanks], reason, r -> {});
  }

  private Registration(
      int id,
      DeviceBuffer buffer,
      RegisteredMemory[] memories,
      long[] addresses,
      String staged,
      Consumer<Registration> onClose) {
    this.id = id;
    this.buffer = buffer;
    this.memories = memories;
    this.addresses = addresses;
    this.staged = staged;
    this.onClose = onClose;
  }

  /** Returns its number, the same on every rank, from 0. */
  public int id() {
    return id;
  }

  /** Returns this rank's buffer. */
  public DeviceBuffer buffer() {
    return buffer;
  }

  /**
   * Returns why calls with this buffer use staging buffers, as if it were not registered: other
   * ranks can't map some rank's memory ({@link DeviceBuffer#unshareableReason}). All ranks get the
   * same answer; empty if peers use the buffer directly.
   */
  public Optional<String> stagedReason() {
    return Optional.ofNullable(staged);
  }

  /**
   * Returns {@link #stagedReason}.
   *
   * @deprecated Use {@link #stagedReason}.
   */
  @Deprecated
  public Optional<String> stagedBecause() {
    return stagedReason();
  }

  /**
   * Returns the address at which this rank and its kernels reach a rank's buffer.
   *
   * @param rank the owner of the buffer
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
   * Closes the registration after the work already enqueued. Later calls use staging buffers. Close
   * it on every rank between the same calls. The buffer stays open. Idempotent.
   */
  @Override
  public void close() {
    onClose.accept(this);
  }
}

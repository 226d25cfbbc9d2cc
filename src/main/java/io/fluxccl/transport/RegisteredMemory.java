// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport;

import io.fluxccl.InvalidUsage;
import io.fluxccl.Text;
import io.fluxccl.concurrent.Lifecycle;
import io.fluxccl.device.DeviceBuffer;
import java.util.EnumMap;
import java.util.Map;

/**
 * Memory that transports can access. It belongs to this rank (made by {@code
 * Communicator.registerMemory}) or to a peer (received through {@code recvMemoryOnSetup}). This
 * object does not own the memory; it keeps it mapped until closed. Thread-safe. Only {@link
 * #isClosed()} changes.
 */
public final class RegisteredMemory implements AutoCloseable {
  private final MemoryOrigin origin;
  private final TransportFlags transports;
  private final Map<Transport, MemoryHandle> handles;
  private final DeviceBuffer buffer;
  private final long address;
  private final Lifecycle lifecycle = new Lifecycle(this);

  private RegisteredMemory(
      MemoryOrigin origin,
      TransportFlags transports,
      Map<Transport, MemoryHandle> handles,
      DeviceBuffer buffer,
      long address) {
    this.origin = origin;
    this.transports = transports;
    this.handles = new EnumMap<>(Transport.class);
    this.handles.putAll(handles);
    handles.values().forEach(lifecycle::own);
    this.buffer = buffer;
    this.address = address;
  }

  /**
   * Creates the registered memory of this rank.
   *
   * @param origin this rank, with the buffer's address and size
   * @param buffer the memory
   * @param handles the handle of each transport
   * @return the registered memory, which closes the handles
   */
  public static RegisteredMemory local(
      MemoryOrigin origin, DeviceBuffer buffer, Map<Transport, MemoryHandle> handles) {
    return new RegisteredMemory(origin, flagsOf(handles), handles, buffer, buffer.address());
  }

  /**
   * Creates the registered memory of a peer.
   *
   * @param origin the origin that the peer sent
   * @param transports all transports that the peer registered it for, including those that this
   *     rank can't use
   * @param handles the handles that this rank has opened
   * @return the registered memory, which closes the handles
   */
  public static RegisteredMemory remote(
      MemoryOrigin origin, TransportFlags transports, Map<Transport, MemoryHandle> handles) {
    long address =
        handles.values().stream()
            .mapToLong(MemoryHandle::address)
            .filter(a -> a != 0)
            .findFirst()
            .orElse(0);
    return new RegisteredMemory(origin, transports, handles, null, address);
  }

  private static TransportFlags flagsOf(Map<Transport, MemoryHandle> handles) {
    return TransportFlags.of(handles.keySet().toArray(new Transport[0]));
  }

  /** Returns the rank that owns the memory. */
  public int rank() {
    return origin.rank();
  }

  /** Returns the length in bytes. */
  public long size() {
    return origin.size();
  }

  /** Returns the transports that the memory was registered for. */
  public TransportFlags transports() {
    return transports;
  }

  /** Returns the origin of the memory. */
  public MemoryOrigin origin() {
    return origin;
  }

  /** Returns whether the memory belongs to this rank. */
  public boolean isLocal() {
    return buffer != null;
  }

  /** Returns whether this process and its kernels can access the memory by {@link #address()}. */
  public boolean isMapped() {
    return address != 0;
  }

  /**
   * Returns the address by which this process and its kernels access the memory. It differs from
   * the owner's address.
   *
   * @return the address
   * @throws InvalidUsage if the memory is not mapped in this process
   */
  public long address() {
    if (address == 0) {
      throw InvalidUsage.of(
          "memory of rank %s (%s bytes, %s) is not mapped in this process;"
              + " only a connection can reach it",
          rank(), size(), transports);
    }
    return address;
  }

  /**
   * Returns the local buffer.
   *
   * @return the buffer
   * @throws InvalidUsage if this is a peer's memory
   */
  public DeviceBuffer buffer() {
    if (buffer == null) {
      throw InvalidUsage.of("memory belongs to rank %s; only the owner has its buffer", rank());
    }
    return buffer;
  }

  /**
   * Returns a transport's handle of this memory.
   *
   * @param transport one of {@link #transports()}
   * @return its handle
   * @throws InvalidUsage if the memory was not registered for it, or this rank can't use it
   */
  public MemoryHandle handle(Transport transport) {
    MemoryHandle handle = handles.get(transport);
    if (handle == null) {
      throw InvalidUsage.of(
          "memory of rank %s is registered for %s and usable here through %s, not through %s;"
              + " name it in registerMemory",
          rank(), transports, handles.keySet(), transport);
    }
    return handle;
  }

  /**
   * Checks that a range lies within this memory.
   *
   * @param what the role of this memory, for the error, for example {@code target}
   * @param offset bytes from the start
   * @param length bytes
   * @throws InvalidUsage if the range lies outside this memory
   */
  public void checkRange(String what, long offset, long length) {
    if (offset < 0 || length < 0 || offset > size() - length) {
      throw InvalidUsage.of(
          "%s range offset=%s length=%s is outside the %s bytes of rank %s's memory",
          what, offset, length, size(), rank());
    }
  }

  /** Returns the bytes that {@code Communicator.recvMemoryOnSetup} reads on a peer. */
  public byte[] serialize() {
    Map<Transport, byte[]> wires = new EnumMap<>(Transport.class);
    handles.forEach((transport, handle) -> wires.put(transport, handle.wire()));
    return RegisteredMemoryCodec.encode(new RegisteredMemoryCodec.Decoded(origin, wires));
  }

  /** Returns whether this memory was closed. */
  public boolean isClosed() {
    return lifecycle.isClosed();
  }

  /** Ends the registrations (owner) or the mappings (peer). Idempotent. */
  @Override
  public void close() {
    lifecycle.close();
  }

  @Override
  public String toString() {
    return Text.of(
        "RegisteredMemory(rank=%s, size=%s, %s%s)",
        rank(), size(), transports, isLocal() ? ", local" : "");
  }
}

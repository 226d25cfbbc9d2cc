package io.fluxccl.transport;

import io.fluxccl.InvalidUsage;
import io.fluxccl.concurrent.Closing;
import io.fluxccl.device.DeviceBuffer;
import java.util.EnumMap;
import java.util.Map;

/**
 * Memory that transports can reach: of this rank (made by {@code Communicator.registerMemory}) or
 * of a peer (received through {@code recvMemoryOnSetup}). Does not own the memory; keeps it mapped
 * until closed. Immutable and thread-safe.
 */
public final class RegisteredMemory implements AutoCloseable {
  private final MemoryOrigin origin;
  private final TransportFlags transports;
  private final Map<Transport, MemoryHandle> handles;
  private final DeviceBuffer buffer;
  private final long address;

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
    this.buffer = buffer;
    this.address = address;
  }

  /**
   * Memory of this rank.
   *
   * @param origin this rank, with the buffer's address and size
   * @param buffer the memory
   * @param handles what each transport registered
   * @return the registered memory, which closes the handles
   */
  public static RegisteredMemory local(
      MemoryOrigin origin, DeviceBuffer buffer, Map<Transport, MemoryHandle> handles) {
    return new RegisteredMemory(origin, flagsOf(handles), handles, buffer, buffer.address());
  }

  /**
   * Memory of a peer.
   *
   * @param origin as the peer said
   * @param transports all that the peer registered it for, also those that can't be used from here
   * @param handles those that were opened here
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

  /** The rank that owns the memory. */
  public int rank() {
    return origin.rank();
  }

  /** Its length in bytes. */
  public long size() {
    return origin.size();
  }

  /** The transports it was registered for. */
  public TransportFlags transports() {
    return transports;
  }

  /** Where it comes from. */
  public MemoryOrigin origin() {
    return origin;
  }

  /** Whether it is memory of this rank. */
  public boolean isLocal() {
    return buffer != null;
  }

  /** Whether this process and its kernels can read and write it by {@link #address()}. */
  public boolean isMapped() {
    return address != 0;
  }

  /**
   * The address by which this process and its kernels reach it; not the address that the owner
   * sees.
   *
   * @return the address
   * @throws InvalidUsage if it is not mapped here
   */
  public long address() {
    if (address == 0) {
      throw new InvalidUsage(
          "memory of rank "
              + rank()
              + " ("
              + size()
              + " bytes, "
              + transports
              + ") is not mapped in this process; only a connection can reach it");
    }
    return address;
  }

  /**
   * The local buffer.
   *
   * @return the buffer
   * @throws InvalidUsage if this is a peer's memory
   */
  public DeviceBuffer buffer() {
    if (buffer == null) {
      throw new InvalidUsage(
          "memory belongs to rank " + rank() + "; only the owner has its buffer");
    }
    return buffer;
  }

  /**
   * What a transport needs to reach this memory.
   *
   * @param transport which
   * @return its handle
   * @throws InvalidUsage if the memory was not registered for it, or it can't be used from here
   */
  public MemoryHandle handle(Transport transport) {
    MemoryHandle handle = handles.get(transport);
    if (handle == null) {
      throw new InvalidUsage(
          "memory of rank "
              + rank()
              + " is registered for "
              + transports
              + " and usable here through "
              + handles.keySet()
              + ", not through "
              + transport
              + "; name it in registerMemory");
    }
    return handle;
  }

  /**
   * Refuses a range that does not lie within this memory.
   *
   * @param what how the message calls this memory, for example {@code target}
   * @param offset bytes from the start
   * @param length bytes
   * @throws InvalidUsage if the range lies outside
   */
  public void checkRange(String what, long offset, long length) {
    if (offset < 0 || length < 0 || offset > size() - length) {
      throw new InvalidUsage(
          what
              + " range offset="
              + offset
              + " length="
              + length
              + " is outside the "
              + size()
              + " bytes of rank "
              + rank()
              + "'s memory");
    }
  }

  /** What a peer needs to use this memory; read by {@code Communicator.recvMemoryOnSetup}. */
  public byte[] serialize() {
    Map<Transport, byte[]> wires = new EnumMap<>(Transport.class);
    handles.forEach((transport, handle) -> wires.put(transport, handle.wire()));
    return RegisteredMemoryCodec.encode(new RegisteredMemoryCodec.Decoded(origin, wires));
  }

  /** Ends the registrations (owner) or the mappings (peer). Idempotent. */
  @Override
  public void close() {
    // What can't be closed keeps nothing else from it.
    Closing.all(handles.values());
  }

  @Override
  public String toString() {
    return "RegisteredMemory(rank="
        + rank()
        + ", size="
        + size()
        + ", "
        + transports
        + (isLocal() ? ", local" : "")
        + ")";
  }
}

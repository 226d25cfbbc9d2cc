package io.fluxccl.transport;

/**
 * What one transport needs to reach one piece of memory: made by {@link TransportContext#register}
 * on the owner's side and by {@link TransportContext#open} on a peer's. Thread-safe.
 */
public interface MemoryHandle extends AutoCloseable {
  /**
   * The bytes that tell a peer's {@link TransportContext#open} how to reach the memory; at most 64
   * KiB.
   */
  byte[] wire();

  /**
   * The address by which this process and its kernels can read and write the memory, or 0 when they
   * can't.
   */
  long address();

  /** Ends the registration (owner) or the mapping (peer). Idempotent. */
  @Override
  void close();
}

package io.fluxccl.device;

import org.agrona.concurrent.AtomicBuffer;

/**
 * Memory of the host that host threads and the device's kernels both read and write, coherently.
 */
public interface PinnedBuffer extends AutoCloseable {
  /**
   * How host threads see it. Agrona checks bounds unless {@code agrona.disable.bounds.checks} is
   * set, as the launcher does.
   */
  AtomicBuffer buffer();

  /** The address by which kernels see its first byte; a multiple of 64. */
  long deviceAddress();

  /** Its length in bytes. */
  int size();

  /** Whether it was closed. */
  boolean isClosed();

  /**
   * Lets go of the memory once work already enqueued on the device's streams is done. Idempotent.
   */
  @Override
  void close();
}

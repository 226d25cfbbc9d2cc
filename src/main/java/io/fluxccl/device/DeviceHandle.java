package io.fluxccl.device;

import org.agrona.MutableDirectBuffer;

/**
 * The view that a kernel gets of an object of the host: a structure of addresses and numbers, laid
 * out as the object's descriptor class says, the same bytes for host kernels and for CUDA. As a
 * kernel argument it is passed by value.
 */
public interface DeviceHandle {
  /** Returns the bytes of the structure; a multiple of 8. */
  int handleLength();

  /**
   * Writes the structure, {@link #handleLength()} bytes.
   *
   * @param target where
   * @param offset from its start
   * @throws IllegalStateException if it needs a value of a peer before {@code setup()}
   */
  void writeHandle(MutableDirectBuffer target, int offset);
}

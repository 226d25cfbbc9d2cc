package io.fluxccl.device;

import org.agrona.MutableDirectBuffer;

/**
 * What a kernel is given of a thing that lives on the host: a structure of addresses and numbers,
 * laid out as the thing's descriptor class says, the same bytes for host kernels and for CUDA. As a
 * kernel argument it is passed by value.
 */
public interface DeviceHandle {
  /** Bytes of the structure; a multiple of 8. */
  int handleLength();

  /**
   * Writes the structure, {@link #handleLength()} bytes.
   *
   * @param target where
   * @param offset from its start
   * @throws IllegalStateException if what it needs of a peer is not there before {@code setup()}
   */
  void writeHandle(MutableDirectBuffer target, int offset);
}

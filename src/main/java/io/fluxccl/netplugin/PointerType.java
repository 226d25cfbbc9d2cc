// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin;

/** The kinds of memory that a network's device can reach. */
public enum PointerType {
  /** Host memory of the process. */
  HOST(1),
  /** CUDA memory, given by its address. */
  CUDA(2),
  /** CUDA memory, given by a dma-buf. */
  DMABUF(4);

  private final int bit;

  PointerType(int bit) {
    this.bit = bit;
  }

  /** Returns NCCL's bit of this kind of memory. */
  public int bit() {
    return bit;
  }
}

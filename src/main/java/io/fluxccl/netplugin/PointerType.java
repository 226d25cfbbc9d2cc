package io.fluxccl.netplugin;

/** The kinds of memory that a network's device can reach. */
public enum PointerType {
  /** Memory of the process. */
  HOST(1),
  /** CUDA memory, by its address. */
  CUDA(2),
  /** CUDA memory, by a dma-buf. */
  DMABUF(4);

  private final int bit;

  PointerType(int bit) {
    this.bit = bit;
  }

  /** NCCL's bit for it. */
  public int bit() {
    return bit;
  }
}

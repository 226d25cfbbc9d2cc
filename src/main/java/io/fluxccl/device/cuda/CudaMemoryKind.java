package io.fluxccl.device.cuda;

/** How memory of a GPU is allocated, which decides how other processes map it. */
public enum CudaMemoryKind {
  /** {@code cuMemAlloc}, shared by legacy IPC handles. Needs nothing else. */
  PLAIN,
  /**
   * {@code cuMemCreate}, shared by file descriptors over a local socket. Needs FluxCCL's native
   * library.
   */
  VMM
}

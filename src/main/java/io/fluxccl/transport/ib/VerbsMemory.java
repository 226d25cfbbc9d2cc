package io.fluxccl.transport.ib;

/** A registration of memory with an RDMA device. Any thread. */
public interface VerbsMemory extends AutoCloseable {
  /** The key by which requests of this rank name it. */
  int localKey();

  /** The key by which requests of peers name it. */
  int remoteKey();

  /** Ends the registration; the device reads and writes the memory no more when this returns. */
  @Override
  void close();
}

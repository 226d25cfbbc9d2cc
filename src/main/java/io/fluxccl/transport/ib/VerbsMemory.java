package io.fluxccl.transport.ib;

/** A registration of memory with an RDMA device. Any thread. */
public interface VerbsMemory extends AutoCloseable {
  /** Returns the key by which requests of this rank name it. */
  int localKey();

  /** Returns the key by which requests of peers name it. */
  int remoteKey();

  /** Ends the registration; the device does not use the memory any more when this returns. */
  @Override
  void close();
}

package io.fluxccl.netplugin;

/** Memory registered for one comm. */
public interface NetMemory extends AutoCloseable {
  /** Ends the registration; nothing in flight may use it. Idempotent. */
  @Override
  void close();
}

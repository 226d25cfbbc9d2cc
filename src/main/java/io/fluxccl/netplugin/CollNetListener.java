package io.fluxccl.netplugin;

/** A rank that is ready to be in a group. */
public interface CollNetListener extends AutoCloseable {
  /** What the others need to make the group: 1 to 128 bytes, a copy. */
  byte[] handle();

  /** Is ready no longer; a group that was made lives on. Idempotent. */
  @Override
  void close();
}

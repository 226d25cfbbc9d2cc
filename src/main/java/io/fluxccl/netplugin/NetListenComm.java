package io.fluxccl.netplugin;

/** A listener for one connection. Used by one thread at a time. */
public interface NetListenComm extends AutoCloseable {
  /** What the sender needs for {@link NetPlugin#connect}: 1 to 128 bytes, a copy. */
  byte[] handle();

  /**
   * Takes the connection when it is there.
   *
   * @return the receiving end, or null: not yet
   * @throws io.fluxccl.FluxCclException if the connection came but failed
   */
  NetRecvComm accept();

  /** Stops listening; a connection that was accepted lives on. Idempotent. */
  @Override
  void close();
}

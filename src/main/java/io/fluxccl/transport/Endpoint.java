package io.fluxccl.transport;

import io.fluxccl.Deadline;
import java.util.concurrent.CompletableFuture;

/**
 * One end of a connection that is being set up: it sends the peer how to reach it, then connects to
 * the peer's end.
 */
public interface Endpoint extends AutoCloseable {
  /** Returns the bytes that the peer's end needs to connect; at most 64 KiB. */
  byte[] wire();

  /**
   * Connects to the peer's end. Called once.
   *
   * @param remoteWire the peer's {@link #wire()}, not yet checked
   * @param deadline by when
   * @return the connection; or {@link io.fluxccl.TransportFailure}, {@link io.fluxccl.Timeout} or
   *     {@link io.fluxccl.InvalidUsage} naming the peer
   */
  CompletableFuture<Connection> connect(byte[] remoteWire, Deadline deadline);

  /**
   * Closes an end that was not connected. Does nothing to a connection already made. Idempotent.
   */
  @Override
  void close();
}

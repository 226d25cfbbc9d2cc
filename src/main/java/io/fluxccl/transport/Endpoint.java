// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport;

import io.fluxccl.Deadline;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.function.Supplier;

/**
 * One end of a connection during set-up. It describes itself to the peer, then connects to the
 * peer's end.
 */
public interface Endpoint extends AutoCloseable {
  /** Returns the bytes that the peer's end needs to connect; at most 64 KiB. */
  byte[] wire();

  /**
   * Connects to the peer's end. Called once.
   *
   * @param remoteWire the peer's {@link #wire()}, not yet checked
   * @param deadline the time by which the connection must be made
   * @return a future of the connection; it fails with {@link io.fluxccl.TransportFailure}, {@link
   *     io.fluxccl.Timeout} or {@link io.fluxccl.InvalidUsage} naming the peer
   */
  CompletableFuture<Connection> connect(byte[] remoteWire, Deadline deadline);

  /**
   * Returns whether {@link #connect(byte[], Deadline, Supplier)} calls its supplier: the ends of
   * this transport have no other way to find out whether the other one is ready.
   */
  default boolean needsReadyExchange() {
    return meetsPeer();
  }

  /**
   * Returns the default of {@link #needsReadyExchange}, for transports that override this method.
   *
   * @deprecated Override {@link #needsReadyExchange}.
   */
  @Deprecated
  default boolean meetsPeer() {
    return false;
  }

  /**
   * Connects to the peer's end as {@link #connect(byte[], Deadline)} does.
   *
   * @param bothReady called once this end takes what the peer sends, if {@link
   *     #needsReadyExchange}: notifies the peer, and completes when the peer's end is ready, too
   */
  default CompletableFuture<Connection> connect(
      byte[] remoteWire, Deadline deadline, Supplier<CompletableFuture<Void>> bothReady) {
    return connect(remoteWire, deadline);
  }

  /**
   * Returns the connection before the two ends are connected: it keeps what is posted until {@link
   * #connect} is done, which the caller begins when asked to, or when the peer asks.
   *
   * @param demand called once, on a thread that must not block, when something is posted and the
   *     ends are not connected
   * @return the connection; empty if this transport connects at set-up only
   */
  default Optional<Connection> onDemand(Runnable demand) {
    return Optional.empty();
  }

  /**
   * Closes an end that was not connected. Does not affect a connection already made. Idempotent.
   */
  @Override
  void close();
}

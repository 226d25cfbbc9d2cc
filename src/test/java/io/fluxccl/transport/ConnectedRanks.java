// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/** Two ranks of one JVM over one transport, and what a communicator would do for them. */
public interface ConnectedRanks extends AutoCloseable {
  /** The timeout of each operation. */
  Duration limit();

  /** A rank's side of the transport. */
  TransportContext context(int rank);

  /** One end of a new connection. */
  Endpoint endpoint(int rank, int remoteRank, int tag);

  /** Both ends of a new connection, that of rank {@code a} first. */
  List<Connection> connect(int a, int b, int tag) throws Exception;

  /** A connection of rank 0 to rank 1 and its other end. */
  default List<Connection> connect(int tag) throws Exception {
    return connect(0, 1, tag);
  }

  /** New registered memory of a rank, zeroed. */
  RegisteredMemory memory(int rank, long size);

  /** New registered memory with bytes that the seed decides. */
  default RegisteredMemory filled(int rank, int size, int seed) {
    RegisteredMemory memory = memory(rank, size);
    Contents.fill(memory, seed);
    return memory;
  }

  /** A rank's memory as the other rank sees it. */
  RegisteredMemory seenByPeer(RegisteredMemory owned);

  /** Returns the result of a future; fails after the timeout. */
  default <T> T await(CompletableFuture<T> future) throws Exception {
    return future.get(limit().toMillis(), TimeUnit.MILLISECONDS);
  }
}

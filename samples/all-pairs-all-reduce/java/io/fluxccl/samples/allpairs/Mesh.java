// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.allpairs;

import io.fluxccl.Deadline;
import io.fluxccl.NonblockingFuture;
import io.fluxccl.bootstrap.Bootstrap;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceKind;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.EndpointConfig;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportFlags;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import reactor.core.publisher.Mono;

/**
 * Steps 1 to 3: allocates buffers, connects to every other rank, exchanges the buffers of all
 * ranks.
 */
final class Mesh implements AutoCloseable {
  private static final int TAG = 0;
  private static final Duration BARRIER_TIMEOUT = Duration.ofSeconds(30);

  final Communicator communicator;
  final int rank;
  final int nRanks;
  final long bytes;

  /** Of each buffer the first half is data and the second half scratch. */
  final List<DeviceBuffer> buffers = new ArrayList<>();

  final Map<Integer, Connection> connections = new HashMap<>();
  final List<RegisteredMemory> local = new ArrayList<>();
  final List<Map<Integer, RegisteredMemory>> remote = new ArrayList<>();

  private final Network network;

  private Mesh(Communicator communicator, Network network, long bytes) {
    this.communicator = communicator;
    this.network = network;
    this.rank = communicator.bootstrap().rank();
    this.nRanks = communicator.bootstrap().nRanks();
    this.bytes = bytes;
  }

  static CompletableFuture<Mesh> build(
      Communicator communicator, Network network, int numBuffers, long bytes) {
    Mesh mesh = new Mesh(communicator, network, bytes);
    for (int i = 0; i < numBuffers; i++) {
      mesh.buffers.add(communicator.device().allocate(2 * bytes));
    }
    return mesh.connect().thenCompose(connected -> mesh.exchange()).thenApply(exchanged -> mesh);
  }

  /** Returns whether kernels of this rank and of a peer reach each other's memory directly. */
  boolean isMapped(int peer) {
    Bootstrap bootstrap = communicator.bootstrap();
    return !network.evenWithinHosts() && bootstrap.hostHash(peer) == bootstrap.hostHash(rank);
  }

  Transport transportTo(int peer) {
    return isMapped(peer) ? mapping() : network.between(communicator.bootstrap(), peer);
  }

  /** Returns the transport to each peer, for a person. */
  String transports() {
    return IntStream.range(0, nRanks)
        .filter(peer -> peer != rank)
        .mapToObj(peer -> transportTo(peer) + " to " + peer)
        .collect(Collectors.joining(", "));
  }

  /** The transport that maps memory of the same host. */
  private Transport mapping() {
    return communicator.device().kind() == DeviceKind.CUDA ? Transport.CUDA_IPC : Transport.SHM;
  }

  /** Bytes of one rank's part of a buffer. */
  long chunk() {
    return bytes / nRanks;
  }

  /** Completes after every rank has called it. */
  Mono<Void> barrier() {
    return Mono.defer(
        () -> Mono.fromFuture(communicator.bootstrap().barrier(Deadline.after(BARRIER_TIMEOUT))));
  }

  private CompletableFuture<Void> connect() {
    Map<Integer, NonblockingFuture<Connection>> links = new HashMap<>();
    for (int peer = 0; peer < nRanks; peer++) {
      if (peer != rank) {
        links.put(
            peer, communicator.connectOnSetup(peer, TAG, EndpointConfig.of(transportTo(peer))));
      }
    }
    return communicator
        .setup()
        .thenRun(() -> links.forEach((peer, link) -> connections.put(peer, link.join())));
  }

  private CompletableFuture<Void> exchange() {
    TransportFlags transports = TransportFlags.of(mapping());
    for (int peer = 0; peer < nRanks; peer++) {
      transports = transports.with(transportTo(peer));
    }
    List<Map<Integer, NonblockingFuture<RegisteredMemory>>> expected = new ArrayList<>();
    for (DeviceBuffer buffer : buffers) {
      RegisteredMemory mine = communicator.registerMemory(buffer, transports);
      local.add(mine);
      Map<Integer, NonblockingFuture<RegisteredMemory>> theirs = new HashMap<>();
      for (int peer : connections.keySet()) {
        communicator.sendMemoryOnSetup(mine, peer, TAG);
        theirs.put(peer, communicator.recvMemoryOnSetup(peer, TAG));
      }
      expected.add(theirs);
    }
    return communicator
        .setup()
        .thenRun(
            () -> {
              for (Map<Integer, NonblockingFuture<RegisteredMemory>> theirs : expected) {
                Map<Integer, RegisteredMemory> memories = new HashMap<>();
                theirs.forEach((peer, memory) -> memories.put(peer, memory.join()));
                remote.add(memories);
              }
            });
  }

  @Override
  public void close() {
    remote.forEach(memories -> memories.values().forEach(RegisteredMemory::close));
    local.forEach(RegisteredMemory::close);
    connections.values().forEach(Connection::close);
    buffers.forEach(DeviceBuffer::close);
  }
}

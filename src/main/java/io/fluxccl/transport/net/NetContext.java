// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import io.fluxccl.Deadline;
import io.fluxccl.InvalidUsage;
import io.fluxccl.Text;
import io.fluxccl.TransportFailure;
import io.fluxccl.concurrent.Closing;
import io.fluxccl.concurrent.Lifecycle;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceKind;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.Endpoint;
import io.fluxccl.transport.EndpointConfig;
import io.fluxccl.transport.MemoryHandle;
import io.fluxccl.transport.MemoryOrigin;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportContext;
import io.fluxccl.transport.TransportEnvironment;
import java.security.SecureRandom;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.function.Predicate;

/** The network transport of one communicator, over one network. */
public final class NetContext implements TransportContext {
  private static final long CLOSE_SECONDS = 10;

  /** One end of a connection. The connection already exists and waits for its peer. */
  private record End(NetConnection connection, byte[] encoded) implements Endpoint {
    @Override
    public byte[] wire() {
      return encoded.clone();
    }

    @Override
    public CompletableFuture<Connection> connect(byte[] remoteWire, Deadline deadline) {
      return connection.connect(remoteWire, deadline);
    }

    /**
     * {@inheritDoc}
     *
     * <p>Only where nothing is staged: the slots are pinned when the ends connect, which must not
     * happen while kernels run.
     */
    @Override
    public Optional<Connection> onDemand(Runnable demand) {
      if (connection.context().staging() != null) {
        return Optional.empty();
      }
      connection.onDemand(demand);
      return Optional.of(connection);
    }

    @Override
    public void close() {
      connection.giveUp();
    }
  }

  private final TransportEnvironment environment;
  private final Transport transport;
  private final LinkNetwork network;
  private final Predicate<DeviceBuffer> alsoStaged;
  private final SecureRandom random = new SecureRandom();
  private final MemoryTable memories = new MemoryTable(this, random);
  private final NetAgent agent;

  /** Null if the network can access all memory that this rank may register. */
  private final Staging staging;

  private final Set<NetConnection> connections = ConcurrentHashMap.newKeySet();
  private final Lifecycle lifecycle;

  /**
   * Creates a context and starts its agent.
   *
   * @param transport NET or ETHERNET
   * @param network the network; closed when all connections have ended
   * @param alsoStaged returns whether to stage a buffer that the network can access; null stages
   *     none
   */
  public NetContext(
      Transport transport,
      TransportEnvironment environment,
      LinkNetwork network,
      Predicate<DeviceBuffer> alsoStaged) {
    this.transport = transport;
    this.environment = environment;
    this.lifecycle = new Lifecycle("the " + transport + " context of rank " + rank());
    this.network = network;
    this.alsoStaged = alsoStaged;
    boolean reachesAll = environment.device().kind() == DeviceKind.HOST || network.reachesGpus();
    this.staging = reachesAll && alsoStaged == null ? null : new Staging(environment.device());
    String name = "fluxccl-" + transport.name().toLowerCase(Locale.ROOT);
    this.agent =
        Closing.onFailure(
            staging == null ? null : staging::close,
            () -> new NetAgent(name + "-rank" + rank(), environment.device(), network));
    agent.start();
  }

  @Override
  public Transport transport() {
    return transport;
  }

  int rank() {
    return environment.rank();
  }

  LinkNetwork network() {
    return network;
  }

  NetAgent agent() {
    return agent;
  }

  Staging staging() {
    return staging;
  }

  MemoryTable memories() {
    return memories;
  }

  @Override
  public MemoryHandle register(DeviceBuffer buffer) {
    lifecycle.checkOpen();
    boolean isOnHost = buffer.device().kind() == DeviceKind.HOST;
    if (alsoStaged != null ? !alsoStaged.test(buffer) : isOnHost) {
      return memories.add(buffer, NetMemoryHandle.Place.HOST);
    }
    refuseOthers(buffer);
    return memories.add(
        buffer, staging == null ? NetMemoryHandle.Place.DEVICE : NetMemoryHandle.Place.STAGED);
  }

  private void refuseOthers(DeviceBuffer buffer) {
    if (environment.device().kind() != buffer.device().kind()
        || environment.device().index() != buffer.device().index()) {
      throw InvalidUsage.of(
          "the buffer is on %s device %s, the communicator on %s device %s; register"
              + " memory of the communicator's own device",
          buffer.device().kind(),
          buffer.device().index(),
          environment.device().kind(),
          environment.device().index());
    }
  }

  @Override
  public MemoryHandle open(byte[] wire, MemoryOrigin origin) {
    lifecycle.checkOpen();
    return NetMemoryHandle.decode(this, wire, origin.rank(), origin.size());
  }

  @Override
  public Endpoint createEndpoint(int remoteRank, int tag, EndpointConfig config) {
    lifecycle.checkOpen();
    if (remoteRank < 0 || remoteRank >= environment.nRanks()) {
      throw new InvalidUsage(
          "remoteRank=" + remoteRank + "; give 0 to " + (environment.nRanks() - 1));
    }
    Link link = network.listen(remoteRank, config);
    NetConnection connection = new NetConnection(this, remoteRank, tag, config, link);
    // In this order: otherwise close() could end a connection before the agent adds it.
    agent.execute(() -> agent.add(connection));
    connections.add(connection);
    if (lifecycle.isClosed()) {
      connection.close();
      lifecycle.checkOpen();
    }
    EndpointWire wire =
        new EndpointWire(network.name(), rank(), tag, config.checksums(), link.address());
    return new End(connection, wire.encode());
  }

  void forget(NetConnection connection) {
    connections.remove(connection);
  }

  /** Returns the number of connections. For tests. */
  int openConnections() {
    return connections.size();
  }

  /**
   * Removes a memory whose registration has ended, and fails connections whose peer is writing to
   * it. On other threads than the agent, waits until the agent has done so, at most {@value
   * #CLOSE_SECONDS} s.
   */
  void closed(OwnedMemory memory) {
    memories.remove(memory);
    CountDownLatch done = new CountDownLatch(1);
    Runnable task =
        () -> {
          try {
            for (NetConnection connection : agent.connections()) {
              connection.closed(memory);
            }
          } finally {
            done.countDown();
          }
        };
    if (agent.isCurrentThread()) {
      task.run();
      return;
    }
    agent.execute(task);
    awaitClosed(done, memory);
  }

  private void awaitClosed(CountDownLatch done, OwnedMemory memory) {
    boolean interrupted = false;
    long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(CLOSE_SECONDS);
    while (done.getCount() > 0) {
      try {
        if (!done.await(end - System.nanoTime(), TimeUnit.NANOSECONDS)) {
          throw new TransportFailure(
              rank(),
              Text.of(
                  "closing a %s registration of %s bytes: the network %s has not"
                      + " returned within %s s",
                  transport, memory.size(), network.name(), CLOSE_SECONDS));
        }
      } catch (InterruptedException e) {
        interrupted = true;
      }
    }
    if (interrupted) {
      Thread.currentThread().interrupt();
    }
  }

  /** Deregisters and frees a memory that has no users any more. Runs as a task of the agent. */
  void letGo(OwnedMemory memory) {
    agent.execute(
        () -> {
          // Frees the memory even if a connection can't deregister it.
          List<AutoCloseable> steps = new ArrayList<>();
          for (NetConnection connection : agent.connections()) {
            steps.add(() -> connection.forget(memory));
          }
          steps.add(memory::free);
          Closing.all(steps);
        });
  }

  @Override
  public void close() {
    if (!lifecycle.beginClose()) {
      return;
    }
    try {
      Closing.all(connections);
    } finally {
      agent.execute(() -> agent.end(this::ended));
    }
  }

  /** Closes the context's resources. Called when all connections have ended. */
  private void ended() {
    // Closes every resource, the network in particular, even if closing one fails.
    Closing.all(
        () -> Closing.all(memories.all()),
        staging == null ? null : staging::close,
        agent.waiter(),
        network);
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.testkit;

import io.fluxccl.RemoteFailure;
import io.fluxccl.Text;
import io.fluxccl.TransportFailure;
import io.fluxccl.bootstrap.LocalBootstrap;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceKind;
import io.fluxccl.transport.Endpoint;
import io.fluxccl.transport.EndpointConfig;
import io.fluxccl.transport.MemoryHandle;
import io.fluxccl.transport.MemoryOrigin;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportContext;
import io.fluxccl.transport.TransportEnvironment;
import io.fluxccl.transport.TransportProvider;
import io.fluxccl.transport.net.EthernetTransport;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.ServiceLoader;
import java.util.Set;
import java.util.concurrent.CopyOnWriteArrayList;

/** The transports of one job's ranks, with ETHERNET over a network that has faults. Thread-safe. */
final class FaultyNetwork {
  private final FaultPlan plan;
  private final List<LocalBootstrap> bootstraps;
  private final List<Fault> injected = new CopyOnWriteArrayList<>();
  private final boolean[] dead;

  // By the handle of the listener at its end. Guarded by this.
  private final Map<List<Byte>, FaultyLink> links = new HashMap<>();

  FaultyNetwork(FaultPlan plan, List<LocalBootstrap> bootstraps) {
    this.plan = plan;
    this.bootstraps = bootstraps;
    this.dead = new boolean[bootstraps.size()];
  }

  /** Returns all transports, for a communicator. */
  Iterable<TransportProvider> transports() {
    List<TransportProvider> all = new ArrayList<>();
    ServiceLoader.load(TransportProvider.class, TransportProvider.class.getClassLoader())
        .forEach(each -> all.add(each instanceof EthernetTransport tcp ? new Provider(tcp) : each));
    return all;
  }

  List<Fault> injected() {
    return List.copyOf(injected);
  }

  void happened(Fault fault) {
    injected.add(fault);
  }

  /** Returns an exception that describes the faults, so that a failure can be repeated. */
  RuntimeException report() {
    return new InjectedFaults(
        Text.of("the network's faults were of %s; of these happened %s", plan, injected));
  }

  /** Simulates the death of a rank's process. */
  void kill(int rank) {
    synchronized (this) {
      dead[rank] = true;
    }
    bootstraps
        .get(rank)
        .abort(new RemoteFailure(rank, "rank " + rank + " was killed by its test's fault plan"));
  }

  synchronized void requireAlive(int rank) {
    if (dead[rank]) {
      throw new TransportFailure(rank, "rank " + rank + " was killed by its test's fault plan");
    }
  }

  synchronized void add(List<Byte> handle, FaultyLink link) {
    links.put(handle, link);
  }

  /** Returns the link to the listener with that handle; null for one that is not of this job. */
  synchronized FaultyLink get(List<Byte> handle) {
    return links.get(handle);
  }

  /** A failure's companion, without a stack of its own. */
  private static final class InjectedFaults extends RuntimeException {
    private static final long serialVersionUID = 1;

    InjectedFaults(String message) {
      super(message, null, false, false);
    }
  }

  private final class Provider implements TransportProvider {
    private final EthernetTransport tcp;

    Provider(EthernetTransport tcp) {
      this.tcp = tcp;
    }

    @Override
    public Set<Transport> transports() {
      return tcp.transports();
    }

    @Override
    public Optional<String> unavailableBecause(Transport transport) {
      return tcp.unavailableBecause(transport);
    }

    @Override
    public Optional<String> unreachableBecause(
        Transport transport, DeviceKind kind, boolean exportsDmaBufs) {
      return tcp.unreachableBecause(transport, kind, exportsDmaBufs);
    }

    @Override
    public TransportContext open(Transport transport, TransportEnvironment environment) {
      FaultyPlugin[] made = new FaultyPlugin[1];
      TransportContext context =
          tcp.open(
              transport,
              environment,
              plugin -> made[0] = new FaultyPlugin(FaultyNetwork.this, plugin));
      return new Context(context, made[0], environment.rank());
    }
  }

  /** Assigns the listener of each endpoint to a link of the network. */
  private final class Context implements TransportContext {
    private final TransportContext context;
    private final FaultyPlugin plugin;
    private final int rank;

    /** The number of connections from each rank. Guarded by this. */
    private final Map<Integer, Integer> connections = new HashMap<>();

    Context(TransportContext context, FaultyPlugin plugin, int rank) {
      this.context = context;
      this.plugin = plugin;
      this.rank = rank;
    }

    @Override
    public Transport transport() {
      return context.transport();
    }

    @Override
    public MemoryHandle register(DeviceBuffer buffer) {
      return context.register(buffer);
    }

    @Override
    public MemoryHandle open(byte[] wire, MemoryOrigin origin) {
      return context.open(wire, origin);
    }

    @Override
    public synchronized Endpoint createEndpoint(int remoteRank, int tag, EndpointConfig config) {
      int number = connections.merge(remoteRank, 1, Integer::sum) - 1;
      FaultyLink link = new FaultyLink(remoteRank, rank, number, plan.faults(), config.checksums());
      return plugin.listeningFor(link, () -> context.createEndpoint(remoteRank, tag, config));
    }

    @Override
    public void close() {
      context.close();
    }
  }
}

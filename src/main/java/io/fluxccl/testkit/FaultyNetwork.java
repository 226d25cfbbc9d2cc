// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.testkit;

import io.fluxccl.RemoteFailure;
import io.fluxccl.Text;
import io.fluxccl.TransportFailure;
import io.fluxccl.bootstrap.LocalBootstrap;
import io.fluxccl.device.DeviceKind;
import io.fluxccl.transport.EndpointConfig;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportContext;
import io.fluxccl.transport.TransportEnvironment;
import io.fluxccl.transport.TransportProvider;
import io.fluxccl.transport.net.EthernetTransport;
import io.fluxccl.transport.net.Link;
import io.fluxccl.transport.net.LinkNetwork;
import io.fluxccl.transport.net.ResumableLink;
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
      return tcp.open(transport, environment, links -> new Network(links, environment.rank()));
    }
  }

  /** A rank's TCP network, whose links have the faults of the plan. */
  private final class Network implements LinkNetwork {
    private final LinkNetwork links;
    private final int rank;

    /** The number of connections to each rank. Guarded by this. */
    private final Map<Integer, Integer> connections = new HashMap<>();

    Network(LinkNetwork links, int rank) {
      this.links = links;
      this.rank = rank;
    }

    @Override
    public String name() {
      return links.name();
    }

    @Override
    public boolean reachesGpus() {
      return links.reachesGpus();
    }

    @Override
    public synchronized Link listen(int peer, EndpointConfig config) {
      int number = connections.merge(peer, 1, Integer::sum) - 1;
      List<Fault> faults =
          plan.faults().stream()
              .filter(fault -> fault.isOf(rank, peer, number))
              .filter(fault -> config.checksums() || !fault.kind().needsChecksums())
              .toList();
      ResumableLink link = (ResumableLink) links.listen(peer, config);
      return new FaultySender(FaultyNetwork.this, rank, peer, faults, link);
    }

    @Override
    public void tend(long nowNs) {
      links.tend(nowNs);
    }

    @Override
    public void close() {
      links.close();
    }
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.host;

import io.fluxccl.bootstrap.Bootstrap;
import io.fluxccl.collective.AlgorithmFamily;
import io.fluxccl.collective.AlgorithmSet;
import io.fluxccl.collective.CollectiveAlgorithm;
import io.fluxccl.collective.PeerConnections;
import io.fluxccl.collective.RankTopology;
import io.fluxccl.collective.host.HostAlgorithm.TransferMode;
import io.fluxccl.collective.pipe.MappedPipe;
import io.fluxccl.collective.pipe.SlotRing;
import io.fluxccl.concurrent.Closing;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceKind;
import io.fluxccl.transport.RegisteredMemory;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/** The algorithms of host-device ranks that map each other's memory. */
public final class HostFamily implements AlgorithmFamily {
  @Override
  public String name() {
    return "host";
  }

  @Override
  public List<String> description() {
    return List.of(
        "host-one-shot: small calls; each input to the ranks that need it, through shared memory",
        "host-direct: larger calls; in place on memory registered or used before, else as"
            + " host-staged",
        "host-staged: in pieces that stay in cache, reductions in two phases; only when asked for",
        "host-routed: calls whose sizes are read when they run: all-to-all-v with counts in memory,"
            + " dispatch, combine");
  }

  @Override
  public boolean supports(RankTopology topology) {
    return topology.kind() == DeviceKind.HOST && topology.nRanks() > 1 && topology.allMapped();
  }

  @Override
  public CompletableFuture<AlgorithmSet> prepare(PeerConnections peers) {
    return HostSet.prepare(peers);
  }

  /** The workers of a lane on this rank, and the rings that peers write to. */
  static final class HostSet implements AlgorithmSet {
    /** More workers are not faster: memory bandwidth is the limit. */
    private static final int MAX_WORKERS = 8;

    /** The most bytes of the rings of all ranks, which share a host, unless slots get too small. */
    private static final long BUDGET = 520 << 20;

    /** Messages of which a few fit into a core's second-level cache. */
    private static final int LARGEST_PAYLOAD = 32 << 10;

    private final PeerConnections peers;
    private final int nWorkers;
    private final SlotRing ring;

    /** The rings that peers write, by worker and writer; null until they are allocated. */
    private DeviceBuffer rings;

    private List<CollectiveAlgorithm> algorithms = List.of();
    private Worker[] workers = {};
    private HostRouted routed;

    private HostSet(PeerConnections peers) {
      this.peers = peers;
      this.nWorkers = Math.min(MAX_WORKERS, peers.threads());
      this.ring = ringOf(peers.nRanks(), nWorkers);
    }

    static CompletableFuture<AlgorithmSet> prepare(PeerConnections peers) {
      HostSet set = new HostSet(peers);
      return peers
          .exchange(set::allocate)
          .thenApply(set::bind)
          .whenComplete(PeerConnections.onFailure(set::close));
    }

    private DeviceBuffer allocate() {
      // Memory of zeros: all rings are empty.
      rings = peers.communicator().device().allocate(ring(0, nWorkers));
      return rings;
    }

    /** Returns the rings of a number of ranks: the more ranks, the smaller their slots. */
    static SlotRing ringOf(int nRanks, int nWorkers) {
      return SlotRing.within(BUDGET / nRanks / nRanks / nWorkers, LARGEST_PAYLOAD);
    }

    /** Returns where the ring lies that a rank writes for a peer's worker. */
    private long ring(int writer, int worker) {
      return ((long) worker * peers.nRanks() + writer) * ring.bytes();
    }

    private AlgorithmSet bind(RegisteredMemory[] all) {
      MappedPipe[] first = pipes(all, 0);
      workers = new Worker[nWorkers];
      for (int worker = 0; worker < workers.length; worker++) {
        workers[worker] =
            new Worker(
                peers.rank(),
                worker,
                workers.length,
                worker == 0 ? first : pipes(all, worker),
                sameProcess());
      }
      List<CollectiveAlgorithm> ways = new ArrayList<>();
      for (TransferMode way : TransferMode.values()) {
        ways.add(new HostAlgorithm(way, peers.communicator(), workers));
      }
      routed = new HostRouted(peers.communicator(), peers.rank(), first);
      ways.add(routed);
      algorithms = List.copyOf(ways);
      return this;
    }

    private MappedPipe[] pipes(RegisteredMemory[] all, int worker) {
      int rank = peers.rank();
      long abortAddress = peers.communicator().abortFlag().deviceAddress();
      MappedPipe[] pipes = new MappedPipe[peers.nRanks()];
      for (int peer = 0; peer < pipes.length; peer++) {
        if (peer != rank) {
          long toPeer = all[peer].address() + ring(rank, worker);
          long fromPeer = rings.address() + ring(peer, worker);
          pipes[peer] =
              new MappedPipe(peer, ring, toPeer, fromPeer, abortAddress, peers::receivedOtherCall);
        }
      }
      return pipes;
    }

    /** Returns, by rank, whether the rank is in this process. */
    private boolean[] sameProcess() {
      Bootstrap bootstrap = peers.communicator().bootstrap();
      boolean[] same = new boolean[peers.nRanks()];
      for (int rank = 0; rank < same.length; rank++) {
        same[rank] = bootstrap.processHash(rank) == bootstrap.processHash(peers.rank());
      }
      return same;
    }

    @Override
    public List<CollectiveAlgorithm> algorithms() {
      return algorithms;
    }

    @Override
    public void close() {
      for (Worker worker : workers) {
        worker.close();
      }
      Closing.all(routed, rings);
    }
  }
}

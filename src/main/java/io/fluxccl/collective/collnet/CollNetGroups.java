// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.collnet;

import io.fluxccl.DataType;
import io.fluxccl.FluxCclException;
import io.fluxccl.ReduceOp;
import io.fluxccl.collective.PeerConnections;
import io.fluxccl.collective.channel.RailNetwork;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.concurrent.BlockingTasks;
import io.fluxccl.concurrent.Closing;
import io.fluxccl.device.host.SpinWait;
import io.fluxccl.netplugin.NetMemory;
import io.fluxccl.netplugin.NetPlugin;
import io.fluxccl.netplugin.NetRequest;
import io.fluxccl.netplugin.PointerType;
import io.fluxccl.netplugin.vendor.CollNetComm;
import io.fluxccl.netplugin.vendor.CollNetListener;
import io.fluxccl.transport.plugin.CollectiveNetwork;
import io.fluxccl.wire.WireReader;
import io.fluxccl.wire.WireWriter;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.stream.IntStream;
import org.agrona.BufferUtil;
import org.slf4j.LoggerFactory;

/**
 * This rank's groups in a network that reduces data itself: for each lane one group of the ranks of
 * its rail. All ranks have them, or none: a rank that can't take part sends the others the reason.
 */
final class CollNetGroups implements RailNetwork.Groups {
  private static final int MAGIC = 0x464c434e; // FLCN
  private static final int VERSION = 1;
  private static final int MOST_TEXT = 4096;
  private static final int ALIGNMENT = 4096;

  private final PeerConnections peers;
  private final Shape shape;
  private final CollectiveNetwork network;
  private final List<CollNetListener> listeners = new ArrayList<>();
  private final List<CollNetComm> comms = new ArrayList<>();
  private final List<NetMemory> memories = new ArrayList<>();
  private final List<CollNetSlots> lanes = new ArrayList<>();
  private final ByteBuffer slots;

  /** A bit for each type and operation that the network reduces on every rank. */
  private long reductions;

  /** The arguments of {@link RailNetwork#open}. */
  record Shape(int[] rail, int railIndex, int lanes, int slotBytes) {}

  private CollNetGroups(PeerConnections peers, Shape shape, CollectiveNetwork network) {
    this.peers = peers;
    this.shape = shape;
    this.network = network;
    this.slots =
        BufferUtil.allocateDirectAligned(
            (int) (shape.lanes() * CollNetSlots.bytes(shape.slotBytes())), ALIGNMENT);
  }

  /**
   * A rank's message to the others: the handles of its listeners, or the reason why it has none.
   */
  private record Offer(String problem, long reductions, List<byte[]> handles) {
    byte[] encode() {
      WireWriter out = new WireWriter().header(MAGIC, VERSION).string(problem).int64(reductions);
      out.int32(handles.size());
      handles.forEach(out::bytes);
      return out.toBytes();
    }

    static Offer decode(byte[] bytes, int rank, int lanes) {
      WireReader in = WireReader.ofPeer(bytes, "offer of a collective network", rank);
      in.header(MAGIC, VERSION);
      String problem = in.string("problem", MOST_TEXT);
      long reductions = in.int64("reductions");
      int count = in.int32("handles", 0, lanes);
      in.check(count == lanes || !problem.isEmpty(), "handles", Integer.toString(count));
      List<byte[]> handles = new ArrayList<>();
      for (int i = 0; i < count; i++) {
        handles.add(in.bytes("handle", NetPlugin.HANDLE_BYTES));
      }
      in.end();
      return new Offer(problem, reductions, handles);
    }
  }

  static CompletableFuture<Optional<RailNetwork.Groups>> open(PeerConnections peers, Shape shape) {
    return new Opening(peers, shape).run();
  }

  /** The steps in which all ranks open their groups, or agree to use none. */
  private static final class Opening {
    private final PeerConnections peers;
    private final Shape shape;
    private CollNetGroups groups;
    private List<Offer> offers = List.of();
    private String problem = "";

    Opening(PeerConnections peers, Shape shape) {
      this.peers = peers;
      this.shape = shape;
    }

    CompletableFuture<Optional<RailNetwork.Groups>> run() {
      return peers
          .exchange("open a collective network", this::offer)
          .thenAccept(this::takeOffers)
          .thenComposeAsync(
              offered -> peers.exchange("join a collective network", this::join),
              BlockingTasks.EXECUTOR)
          .thenApply(this::result)
          .whenComplete(PeerConnections.onFailure(() -> Closing.all(groups)));
    }

    private byte[] offer() {
      try {
        CollectiveNetwork network = CollectiveNetwork.open();
        groups = new CollNetGroups(peers, shape, network);
        return groups.listen().encode();
      } catch (FluxCclException e) {
        return new Offer(textOf(e), 0, List.of()).encode();
      }
    }

    private static String textOf(FluxCclException e) {
      String text = String.valueOf(e.getMessage());
      return text.substring(0, Math.min(text.length(), MOST_TEXT / 4));
    }

    private void takeOffers(List<byte[]> messages) {
      offers =
          IntStream.range(0, messages.size())
              .mapToObj(rank -> Offer.decode(messages.get(rank), rank, shape.lanes()))
              .toList();
      noteProblem(offers.stream().map(Offer::problem).toList());
    }

    private void noteProblem(List<String> problems) {
      for (int rank = problems.size() - 1; rank >= 0; rank--) {
        if (!problems.get(rank).isEmpty()) {
          problem = "rank " + rank + ": " + problems.get(rank);
        }
      }
    }

    /** Joins the groups, unless a rank can't; returns why this rank can't, or nothing. */
    private byte[] join() {
      String mine = "";
      if (problem.isEmpty()) {
        try {
          groups.join(offers);
        } catch (FluxCclException e) {
          mine = textOf(e);
        }
      }
      return new WireWriter().header(MAGIC, VERSION).string(mine).toBytes();
    }

    private Optional<RailNetwork.Groups> result(List<byte[]> messages) {
      List<String> problems = new ArrayList<>();
      for (int rank = 0; rank < messages.size(); rank++) {
        WireReader in =
            WireReader.ofPeer(messages.get(rank), "outcome of a collective network", rank);
        problems.add(in.header(MAGIC, VERSION).string("problem", MOST_TEXT));
        in.end();
      }
      noteProblem(problems);
      if (problem.isEmpty()) {
        return Optional.of(groups);
      }
      if (peers.rank() == 0) {
        LoggerFactory.getLogger(CollNetGroups.class)
            .warn("the collective network is not used, because of {}", problem);
      }
      Closing.all(groups);
      return Optional.empty();
    }
  }

  private Offer listen() {
    List<byte[]> handles = new ArrayList<>();
    for (int lane = 0; lane < shape.lanes(); lane++) {
      CollNetListener listener = network.plugin().listen(0);
      listeners.add(listener);
      handles.add(listener.handle());
    }
    long all = 0;
    for (DataType type : DataType.values()) {
      for (ReduceOp op : ReduceOp.values()) {
        if (network.plugin().reduces(type, onNetwork(op))) {
          all |= bit(type, op);
        }
      }
    }
    return new Offer("", all, handles);
  }

  private static ReduceOp onNetwork(ReduceOp op) {
    return op == ReduceOp.AVG ? ReduceOp.SUM : op;
  }

  private static long bit(DataType type, ReduceOp op) {
    return 1L << type.ordinal() * ReduceOp.values().length + op.ordinal();
  }

  /** Joins the group of each lane, and registers its slots. Waits for the rail's other ranks. */
  private void join(List<Offer> offers) {
    reductions = offers.stream().mapToLong(Offer::reductions).reduce(-1L, (a, b) -> a & b);
    long bytes = CollNetSlots.bytes(shape.slotBytes());
    for (int lane = 0; lane < shape.lanes(); lane++) {
      int number = lane;
      List<byte[]> handles =
          IntStream.of(shape.rail())
              .mapToObj(rank -> offers.get(rank).handles().get(number))
              .toList();
      CollNetComm comm = network.plugin().connect(handles, shape.railIndex(), listeners.get(lane));
      comms.add(comm);
      long address = BufferUtil.address(slots) + lane * bytes;
      NetMemory memory = comm.register(address, bytes, PointerType.HOST);
      memories.add(memory);
      lanes.add(new CollNetSlots(peers.communicator(), comm, memory, address, shape.slotBytes()));
    }
    Closing.all(listeners);
    listeners.clear();
  }

  @Override
  public boolean reduces(DataType type, ReduceOp op) {
    return op != null && (reductions & bit(type, op)) != 0;
  }

  @Override
  public RailNetwork.Lane lane(int number) {
    return lanes.get(number);
  }

  @Override
  public void close() {
    Closing.all(
        () -> Closing.all(listeners),
        () -> Closing.all(memories),
        () -> Closing.all(comms),
        network);
  }

  /**
   * The group of one lane in a collective network, with slots for the pieces in flight: each has an
   * input and a result. Used by the lane's thread, in the same order on all ranks of the group.
   * Allocates nothing.
   */
  private static final class CollNetSlots implements RailNetwork.Lane {
    private final Communicator communicator;
    private final CollNetComm comm;
    private final NetMemory memory;
    private final long address;
    private final int slotBytes;
    private final NetRequest[] requests = new NetRequest[SLOTS];
    private long posted;
    private long taken;

    /**
     * Creates a lane.
     *
     * @param memory the registration of the slots
     * @param address of the slots, inputs first
     */
    CollNetSlots(
        Communicator communicator,
        CollNetComm comm,
        NetMemory memory,
        long address,
        int slotBytes) {
      this.communicator = communicator;
      this.comm = comm;
      this.memory = memory;
      this.address = address;
      this.slotBytes = slotBytes;
    }

    /** Returns the bytes of all slots of a lane. */
    static long bytes(int slotBytes) {
      return 2L * SLOTS * slotBytes;
    }

    private int slot(long number) {
      return (int) (number % SLOTS);
    }

    @Override
    public long nextInput() {
      return address + (long) slot(posted) * slotBytes;
    }

    private long result(int slot) {
      return address + (long) (SLOTS + slot) * slotBytes;
    }

    @Override
    public boolean post(long count, DataType type, ReduceOp op) {
      int slot = slot(posted);
      try {
        for (int step = 0; step >= 0; step = waitOn(step)) {
          requests[slot] =
              comm.iallreduce(nextInput(), result(slot), count, type, op, memory, memory);
          if (requests[slot] != null) {
            posted++;
            return true;
          }
        }
      } catch (FluxCclException e) {
        communicator.abort(e);
      }
      return false;
    }

    @Override
    public long take() {
      int slot = slot(taken);
      try {
        for (int step = 0; step >= 0; step = waitOn(step)) {
          if (requests[slot].test()) {
            taken++;
            return result(slot);
          }
        }
      } catch (FluxCclException e) {
        communicator.abort(e);
      }
      return 0;
    }

    private int waitOn(int step) {
      return SpinWait.step(step, communicator.abortFlag().deviceAddress(), -1);
    }
  }
}

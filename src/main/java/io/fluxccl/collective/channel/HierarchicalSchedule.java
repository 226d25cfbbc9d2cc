// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.channel;

import static io.fluxccl.collective.channel.PipeLayout.DEPTH;
import static io.fluxccl.collective.channel.PipeLayout.SINGLE_DEPTH;

import io.fluxccl.ReduceOp;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.pipe.CacheLines;
import io.fluxccl.collective.pipe.Pipe;
import io.fluxccl.device.host.HostMemory;

/**
 * A collective over hosts of equally many ranks, on the host device: through mapped memory on a
 * host, along the rails between hosts. Every rank takes the same steps. In each it sends at most
 * two pieces to a peer, and receives pieces that were sent some steps before.
 */
abstract class HierarchicalSchedule extends HostSchedule<PartitionPlan> {
  private static final int NOBODY = -1;

  final Hierarchy hierarchy;
  final int[] local;
  final int[] rail;

  /** This rank's place on its host. */
  final int me;

  final int host;

  /** Number of pieces, as the latest {@link #cut} returned it. */
  long pieces;

  private long cutBegin;
  private long cutEnd;
  private long piece;

  HierarchicalSchedule(HostPipeWorker worker, Hierarchy hierarchy) {
    super(worker);
    this.hierarchy = hierarchy;
    this.local = hierarchy.local();
    this.rail = hierarchy.rail();
    this.me = hierarchy.localIndex();
    this.host = hierarchy.railIndex();
  }

  /**
   * Cuts this worker's share of {@code bytes} into pieces of at most {@code most} bytes; returns
   * their number.
   */
  final long cut(long bytes, long most) {
    cutBegin = worker.layout.begin(bytes, worker.lane);
    cutEnd = worker.layout.end(bytes, worker.lane);
    piece = Math.min(most, worker.layout.piece(cutEnd - cutBegin));
    pieces = (cutEnd - cutBegin + piece - 1) / piece;
    return pieces;
  }

  final long at(long number) {
    return cutBegin + number * piece;
  }

  /** Returns a piece's bytes, of a range no longer than was cut; 0 or less if there is none. */
  final long length(long number, long bytes) {
    return number < 0 ? 0 : Math.min(piece, Math.min(cutEnd, bytes) - at(number));
  }

  /** Returns a piece's bytes in a part; 0 or less if there is none. */
  final long partBytes(int part, long number) {
    return number < pieces ? length(number, what.bytes(part)) : 0;
  }

  /** Returns where a piece of a part begins in the buffer. */
  final long partOffset(int part, long number) {
    return what.begin(part) + at(number);
  }

  /** Returns the place on this host at a cyclic distance after this rank's own. */
  final int localPart(int distance) {
    return (me + distance) % local.length;
  }

  final int otherHost(int distance) {
    return (host + distance) % rail.length;
  }

  /** Adds the other ranks of this host to the targets, unless one has a place. */
  final HostPipeWorker toLocals(int exceptPlace) {
    for (int i = 1; i < local.length; i++) {
      if (localPart(i) != exceptPlace) {
        worker.toPeer(local[localPart(i)]);
      }
    }
    return worker;
  }

  /** Sends a piece of each part to the local rank that handles the part. */
  final boolean sendParts(long number) {
    for (int i = 1; i < local.length; i++) {
      int part = localPart(i);
      long bytes = partBytes(part, number);
      long from = what.input() + partOffset(part, number);
      if (bytes > 0 && !worker.from(from).toPeer(local[part]).copy(bytes)) {
        return false;
      }
    }
    return true;
  }

  /** Receives a piece of each other part from the local rank that handles the part. */
  final boolean receiveParts(long number) {
    for (int i = 1; i < local.length; i++) {
      int part = localPart(local.length - i);
      long bytes = partBytes(part, number);
      long to = what.output() + partOffset(part, number);
      if (bytes > 0 && !worker.fromPeer(local[part]).to(to).copy(bytes)) {
        return false;
      }
    }
    return true;
  }

  /** Adds a piece of this rank's part to the sources: of the inputs of all local ranks. */
  final void fromLocals(long step) {
    long begin = partOffset(me, step);
    if (what.isDirect()) {
      for (long input : what.inputs()) {
        worker.from(input + begin);
      }
    } else {
      worker.fromAll(local, what.input() + begin);
    }
  }

  /** Adds the local ranks to the targets of a piece of this rank's part, and its own output. */
  final HostPipeWorker toOutputs(long step) {
    long begin = partOffset(me, step);
    if (!what.isDirect()) {
      return toLocals(me).to(what.output() + begin);
    }
    for (int i = 1; i < local.length; i++) {
      worker.to(what.outputs()[localPart(i)] + begin);
    }
    return worker.to(what.output() + begin);
  }

  /**
   * An all-reduce that begins with a reduction of each part over the local ranks.
   *
   * <p>On registered buffers, local ranks read each other's input and write each other's output.
   * They pass a barrier at the beginning and at the end, and don't wait for each other's steps
   * between. Otherwise they exchange the pieces of all parts, DEPTH steps before and after.
   */
  abstract static class LocalsFirst extends HierarchicalSchedule {
    /** Steps between sending a piece of each part and receiving its result. */
    private int lag;

    LocalsFirst(HostPipeWorker worker, Hierarchy hierarchy) {
      super(worker, hierarchy);
    }

    @Override
    final long begin() {
      // Equal distances between sending and receiving a piece keep the order in the pipes.
      lag = beginHosts() + (what.isDirect() ? 0 : 2 * DEPTH);
      cut(what.stride(), worker.layout.slotBytes());
      return pieces == 0 ? 0 : pieces + lag;
    }

    @Override
    final boolean step(long step) {
      if (what.isDirect()) {
        return (step > 0 || worker.barrier(local))
            && reduce(step)
            && (step < pieces + lag - 1 || worker.barrier(local));
      }
      return sendParts(step) && reduce(step - DEPTH) && receiveParts(step - lag);
    }

    /** Prepares {@link #what}; returns the steps between a local sum and the sum of all hosts. */
    abstract int beginHosts();

    /** Reduces the piece of a step locally, and the pieces of earlier steps over the hosts. */
    abstract boolean reduce(long step);

    /** Reduces a piece of this rank's part over the local ranks. */
    final boolean reduceLocally(long step) {
      long bytes = partBytes(me, step);
      if (bytes <= 0) {
        return true;
      }
      fromLocals(step);
      return combineForHosts(step, bytes);
    }

    /** Combines the sources, which are the local ranks' pieces, for the other hosts. */
    abstract boolean combineForHosts(long step, long bytes);
  }

  /**
   * All-reduce. The ranks of a host divide the buffer into parts. Each handles its part together
   * with the ranks that have the same part on the other hosts. So hosts exchange no more bytes than
   * if each host were one rank. Each step handles a piece of every part:
   *
   * <pre>
   *   step t    send piece t of each part to the local rank that handles the part
   *             reduce piece t - DEPTH of the own part over the local ranks, send it along the rail
   *             reduce piece t - 2 DEPTH over the hosts, send it along the rail
   *             receive piece t - 3 DEPTH from the rail, send it to the local ranks
   *             receive piece t - 4 DEPTH of the other parts from the local ranks
   * </pre>
   *
   * <p>A split piece goes along the rail twice: each host's part of it to that host, then the
   * reduced parts to all hosts. With two hosts, or small pieces, each host sends the whole piece to
   * all hosts at once. Then at most one piece a step goes along the rail, and may be in flight for
   * longer.
   *
   * <p>Values are combined in local rank order, then in host order. All ranks get the same bits,
   * which may be rounded otherwise than those of all-pairs.
   */
  static final class AllReduce extends LocalsFirst {
    /** More than SINGLE_DEPTH, so that no sum is overwritten before its use; a power of two. */
    private static final int PARTIALS = 16;

    /** Addresses of this host's sums of the latest pieces, until the other hosts' sums arrive. */
    private final long[] sums = new long[PARTIALS];

    private int onRail;
    private boolean split;

    AllReduce(HostPipeWorker worker, Hierarchy hierarchy) {
      super(worker, hierarchy);
    }

    @Override
    int beginHosts() {
      split = hierarchy.isSplit(what.size());
      onRail = split ? DEPTH : SINGLE_DEPTH;
      return split ? 2 * DEPTH : onRail;
    }

    @Override
    boolean reduce(long step) {
      return reduceLocally(step) && reduceHosts(step - onRail) && takeFromHosts(step - 2 * DEPTH);
    }

    @Override
    boolean combineForHosts(long step, long bytes) {
      if (split) {
        return reduceParts(what.output() + partOffset(me, step), bytes);
      }
      // This host keeps its sum in a slot, not in the output.
      boolean sent = toRail().combine(bytes, 1);
      sums[(int) step & PARTIALS - 1] = worker.firstTarget();
      return sent;
    }

    /** Adds the other ranks of this rail to the targets. */
    private HostPipeWorker toRail() {
      for (int i = 1; i < rail.length; i++) {
        worker.toPeer(rail[otherHost(i)]);
      }
      return worker;
    }

    /** Reduces this host's part to the output, and each other host's part to that host. */
    private boolean reduceParts(long to, long bytes) {
      if (!worker.take()) {
        return false;
      }
      long stride = hierarchy.stride(bytes);
      for (int i = 0; i < rail.length; i++) {
        int part = otherHost(i);
        long offset = Math.min(bytes, part * stride);
        long length = Math.min(stride, bytes - offset);
        if (length > 0) {
          HostPipeWorker ends = i == 0 ? worker.to(to + offset) : worker.toPeer(rail[part]);
          if (!ends.combine(offset, length, 1)) {
            return false;
          }
        }
      }
      worker.release();
      return true;
    }

    private boolean reduceHosts(long step) {
      long bytes = partBytes(me, step);
      if (bytes <= 0) {
        return true;
      }
      if (!split) {
        // The piece is complete now, and goes to the local ranks.
        worker.fromAll(rail, sums[(int) step & PARTIALS - 1]);
        return toOutputs(step).combine(bytes, worker.nRanks);
      }
      long stride = hierarchy.stride(bytes);
      long offset = Math.min(bytes, host * stride);
      long length = Math.min(stride, bytes - offset);
      if (length == 0) {
        return true;
      }
      long mine = what.output() + partOffset(me, step) + offset;
      worker.fromAll(rail, mine);
      return toRail().to(mine).combine(length, worker.nRanks);
    }

    private boolean takeFromHosts(long step) {
      long bytes = partBytes(me, step);
      if (!split || bytes <= 0) {
        return true;
      }
      long stride = hierarchy.stride(bytes);
      long to = what.output() + partOffset(me, step);
      for (int i = 1; i < rail.length; i++) {
        int part = otherHost(rail.length - i);
        long offset = Math.min(bytes, part * stride);
        long length = Math.min(stride, bytes - offset);
        if (length > 0 && !worker.fromPeer(rail[part]).to(to + offset).copy(length)) {
          return false;
        }
      }
      worker.from(to);
      return toOutputs(step).copy(bytes);
    }
  }

  /**
   * All-reduce whose rails are reduced by the network. As {@link AllReduce}, but a rail's sum comes
   * from the network:
   *
   * <pre>
   *   step t    send piece t of each part to the local rank that handles the part
   *             reduce piece t - DEPTH of the own part over the local ranks, give it to the network
   *             take the hosts' sum of piece t - DEPTH - IN_FLIGHT, send it to the local ranks
   *             receive piece t - 2 DEPTH - IN_FLIGHT of the other parts from the local ranks
   * </pre>
   *
   * <p>The network chooses the order in which it combines the hosts' values.
   */
  static final class CollNet extends LocalsFirst {
    private static final int IN_FLIGHT = RailNetwork.Lane.SLOTS;

    private final RailNetwork.Lane network;

    CollNet(HostPipeWorker worker, Hierarchy hierarchy, RailNetwork.Lane network) {
      super(worker, hierarchy);
      this.network = network;
    }

    @Override
    int beginHosts() {
      return IN_FLIGHT;
    }

    @Override
    boolean reduce(long step) {
      return takeFromNetwork(step - IN_FLIGHT) && reduceLocally(step);
    }

    @Override
    boolean combineForHosts(long step, long bytes) {
      ReduceOp op = what.op() == ReduceOp.AVG ? ReduceOp.SUM : what.op();
      return worker.to(network.nextInput()).combine(bytes, 1)
          && network.post(bytes / what.type().size(), what.type(), op);
    }

    private boolean takeFromNetwork(long step) {
      long bytes = partBytes(me, step);
      if (bytes <= 0) {
        return true;
      }
      long sum = network.take();
      if (sum == 0) {
        return false;
      }
      worker.from(sum);
      return toOutputs(step).combine(bytes, worker.nRanks);
    }
  }

  /**
   * Broadcast and reduce by hosts. The ranks of a host divide the buffer into parts. Each part goes
   * along its rail from host to host, in a chain that begins or ends at the root's host; on each
   * host it goes from rank to rank. So every link between hosts carries the buffer once.
   *
   * <pre>
   *   broadcast, step t
   *     root:     send each local rank piece t of its part
   *               forward piece t - DEPTH of its own part
   *     others:   receive piece t of the own part, from the root or the host before; forward it
   *               receive piece t - DEPTH of the other parts from the local ranks
   *
   *   reduce, step t
   *               send piece t of each part to the local rank that handles the part
   *               combine piece t - DEPTH of the own part, and send it to the host nearer to the root
   *     root:     receive piece t - 2 DEPTH of the other parts
   * </pre>
   *
   * <p>A broadcast forwards a piece to the next host, and to the local ranks but the root. A rank
   * after the root on its rail waits for a step of the root that is DEPTH later than its own. The
   * root waits only for steps of that rank that are at least DEPTH earlier than its own. A reduce
   * combines in local rank order, then the data from the host further away; 16-bit values are
   * rounded between.
   */
  static final class Chain extends HierarchicalSchedule {
    private boolean isRoot;

    /** The root's place on its host; {@link #NOBODY} on others. */
    private int rootPlace;

    /** The rank that has this rank's part one step nearer to the root, or {@link #NOBODY}. */
    private int nearer;

    /** The rank that has this rank's part one step further from the root, or {@link #NOBODY}. */
    private int further;

    private int divisor;

    Chain(HostPipeWorker worker, Hierarchy hierarchy) {
      super(worker, hierarchy);
    }

    private boolean isBroadcast() {
      return what.kind() == Collective.BROADCAST;
    }

    @Override
    long begin() {
      int distance = Math.floorMod(host - hierarchy.hostOf(what.root()), rail.length);
      isRoot = worker.rank == what.root();
      rootPlace = distance == 0 ? hierarchy.placeOf(what.root()) : NOBODY;
      further = distance == rail.length - 1 ? NOBODY : rail[otherHost(1)];
      nearer = distance > 0 ? rail[otherHost(rail.length - 1)] : isRoot ? NOBODY : what.root();
      divisor = distance == 0 ? worker.nRanks : 1;
      cut(what.stride(), worker.layout.slotBytes());
      return pieces == 0 ? 0 : pieces + (isBroadcast() ? DEPTH : 2 * DEPTH);
    }

    @Override
    boolean step(long step) {
      if (!isBroadcast()) {
        return sendParts(step)
            && combine(step - DEPTH)
            && (!isRoot || receiveParts(step - 2 * DEPTH));
      }
      return isRoot
          ? sendParts(step) && forwardOwn(step - DEPTH)
          : receiveAndForward(step) && receiveParts(step - DEPTH);
    }

    private boolean forwardOwn(long number) {
      for (int part = 0; part < local.length; part++) {
        long bytes = partBytes(part, number);
        long offset = partOffset(part, number);
        if (bytes > 0) {
          worker.from(what.input() + offset).to(what.output() + offset).copy(bytes);
        }
      }
      long bytes = partBytes(me, number);
      return bytes <= 0 || forward(what.input() + partOffset(me, number), bytes);
    }

    private boolean forward(long from, long bytes) {
      worker.from(from);
      if (further != NOBODY) {
        worker.toPeer(further);
      }
      return toLocals(rootPlace).copy(bytes);
    }

    private boolean receiveAndForward(long number) {
      long bytes = partBytes(me, number);
      if (bytes <= 0) {
        return true;
      }
      long to = what.output() + partOffset(me, number);
      return worker.fromPeer(nearer).to(to).copy(bytes) && forward(to, bytes);
    }

    private boolean combine(long number) {
      long bytes = partBytes(me, number);
      if (bytes <= 0) {
        return true;
      }
      fromLocals(number);
      if (further != NOBODY) {
        worker.fromPeer(further);
      }
      return nearer == NOBODY
          ? worker.to(what.output() + partOffset(me, number)).combine(bytes, divisor)
          : worker.toPeer(nearer).combine(bytes, divisor);
    }
  }

  /**
   * The collectives in which every rank has a share for every rank. Each piece takes a round for
   * each host, in which each host exchanges data with a partner, or with itself.
   *
   * <pre>
   *   step t    send what belongs to round t
   *             forward it, between hosts or locally, in round t - SINGLE_DEPTH
   *             finish it in round t - 2 SINGLE_DEPTH
   * </pre>
   *
   * <ul>
   *   <li>All-gather: each share goes along its rail, once to each host; the rank that receives it
   *       sends it to the other ranks of its host.
   *   <li>Reduce-scatter: the rank of a host on a share's rail combines the share over its host. It
   *       sends the result along the rail to the share's owner, which combines it over the hosts.
   *       The order is local rank order, then host order; 16-bit values are rounded between.
   *   <li>All-to-all: the shares of a host's ranks for a rank of another host are gathered by the
   *       rank on that rank's rail, and go there as one message. That sends the same bytes in fewer
   *       messages.
   * </ul>
   *
   * <p>In a round at most one piece goes through a pipe, hence {@link PipeLayout#SINGLE_DEPTH}.
   */
  static final class Rounds extends HierarchicalSchedule {
    private long rounds;

    Rounds(HostPipeWorker worker, Hierarchy hierarchy) {
      super(worker, hierarchy);
    }

    @Override
    long begin() {
      rounds = cut(what.size(), mostBytes()) * rail.length;
      return rounds == 0 ? 0 : rounds + 2 * SINGLE_DEPTH;
    }

    private long mostBytes() {
      if (what.kind() != Collective.ALL_TO_ALL) {
        return worker.layout.slotBytes();
      }
      // A slot takes a piece of each rank of the host.
      long each = worker.layout.slotBytes() / local.length;
      return each < CacheLines.LENGTH ? each : each & -CacheLines.LENGTH;
    }

    @Override
    boolean step(long step) {
      long forwarded = step - SINGLE_DEPTH;
      long finished = step - 2 * SINGLE_DEPTH;
      return (!has(step) || send(number(step), partner(step)))
          && (!has(forwarded) || forward(number(forwarded), partner(forwarded)))
          && (!has(finished) || finish(finished));
    }

    private boolean has(long round) {
      return round >= 0 && round < rounds;
    }

    private long number(long round) {
      return round / rail.length;
    }

    private int partner(long round) {
      return Math.floorMod((int) (round % rail.length) - host, rail.length);
    }

    private long bytes(long number) {
      return length(number, what.size());
    }

    private boolean send(long number, int partner) {
      if (what.kind() == Collective.ALL_GATHER) {
        return partner == host
            || worker.from(what.input() + at(number)).toPeer(rail[partner]).copy(bytes(number));
      }
      for (int i = 1; i < local.length; i++) {
        int place = localPart(i);
        long from = what.inputOf(hierarchy.rank(partner, place)) + at(number);
        if (!worker.from(from).toPeer(local[place]).copy(bytes(number))) {
          return false;
        }
      }
      return true;
    }

    private boolean forward(long number, int partner) {
      return switch (what.kind()) {
        case ALL_GATHER -> distribute(number, partner);
        case REDUCE_SCATTER -> combine(number, partner);
        default -> gather(number, partner);
      };
    }

    private boolean finish(long round) {
      long number = number(round);
      int partner = partner(round);
      return switch (what.kind()) {
        case ALL_GATHER -> collect(number, partner);
        case REDUCE_SCATTER -> round % rail.length < rail.length - 1 || combineHosts(number);
        default -> partner == host || scatter(number, partner);
      };
    }

    /** All-gather: gives a host's share to the local ranks. */
    private boolean distribute(long number, int partner) {
      long bytes = bytes(number);
      long to = what.outputOf(rail[partner]) + at(number);
      HostPipeWorker source =
          partner == host ? worker.from(what.input() + at(number)) : worker.fromPeer(rail[partner]);
      if (!source.to(to).copy(bytes)) {
        return false;
      }
      worker.from(to);
      return toLocals(me).copy(bytes);
    }

    /** All-gather: receives the shares that the local ranks have got. */
    private boolean collect(long number, int partner) {
      for (int i = 1; i < local.length; i++) {
        int place = localPart(local.length - i);
        long to = what.outputOf(hierarchy.rank(partner, place)) + at(number);
        if (!worker.fromPeer(local[place]).to(to).copy(bytes(number))) {
          return false;
        }
      }
      return true;
    }

    /** Reduce-scatter: combines a share over the local ranks. */
    private boolean combine(long number, int partner) {
      worker.fromAll(local, what.inputOf(rail[partner]) + at(number));
      // In place, this rank's share is read and written at the same time.
      HostPipeWorker ends =
          partner == host ? worker.to(what.output() + at(number)) : worker.toPeer(rail[partner]);
      return ends.combine(bytes(number), 1);
    }

    /** Reduce-scatter: combines this rank's share over the hosts. */
    private boolean combineHosts(long number) {
      long to = what.output() + at(number);
      return worker.fromAll(rail, to).to(to).combine(bytes(number), worker.nRanks);
    }

    /**
     * All-to-all: gathers the local ranks' shares, for a rank of the partner in one message, or for
     * this rank in its output.
     */
    private boolean gather(long number, int partner) {
      long bytes = bytes(number);
      Pipe out = worker.pipe(rail[partner]);
      long slot = out == null ? 0 : out.claim();
      if (out != null && slot == 0) {
        return false;
      }
      for (int i = 0; i < local.length; i++) {
        int place = localPart(local.length - i);
        HostPipeWorker source =
            i == 0
                ? worker.from(what.inputOf(rail[partner]) + at(number))
                : worker.fromPeer(local[place]);
        long to = out == null ? what.outputOf(local[place]) + at(number) : slot + place * bytes;
        if (!source.to(to).copy(bytes)) {
          return false;
        }
      }
      if (out != null) {
        out.publish(local.length * bytes);
      }
      return true;
    }

    /** All-to-all: places the partner's message; in place, over data that was already sent. */
    private boolean scatter(long number, int partner) {
      long bytes = bytes(number);
      Pipe in = worker.pipe(rail[partner]);
      long slot = in.take();
      if (slot == 0) {
        return false;
      }
      for (int place = 0; place < local.length; place++) {
        long to = what.outputOf(hierarchy.rank(partner, place)) + at(number);
        HostMemory.copy(to, slot + place * bytes, bytes);
      }
      in.release();
      return true;
    }
  }
}

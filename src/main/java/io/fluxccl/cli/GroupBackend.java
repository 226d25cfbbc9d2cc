// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import io.fluxccl.Deadline;
import io.fluxccl.collective.CapturedPipeline;
import io.fluxccl.collective.CollectiveCall;
import io.fluxccl.collective.Collectives;
import io.fluxccl.collective.Pipeline;
import io.fluxccl.collective.RankTopology;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.concurrent.Lifecycle;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.group.JoinOptions;
import io.fluxccl.group.RankGroup;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.function.IntFunction;

/** Makes ranks of the library: each is a {@link RankGroup}. */
final class GroupBackend implements PerfBackend {
  private final Optional<PeerOpener> peers;

  /** Opens the library that the ranks are compared with. Called by every rank. */
  interface PeerOpener {
    MeasuredLibrary.Peer open(Communicator communicator, CallBuffers buffers, Duration limit);
  }

  /** Makes ranks that are compared with no other library. */
  GroupBackend() {
    this(null);
  }

  /**
   * Makes ranks.
   *
   * @param peers opens the library that the ranks are compared with; null for none
   */
  GroupBackend(PeerOpener peers) {
    this.peers = Optional.ofNullable(peers);
  }

  @Override
  public boolean compares() {
    return peers.isPresent();
  }

  @Override
  public PerfRank fromEnvironment(RankOptions options) {
    JoinOptions joining = options.joining().apply(JoinOptions.fromEnvironment());
    return rank(RankGroup.join(joining).join(), options);
  }

  @Override
  public IntFunction<PerfRank> inProcess(int nRanks, RankOptions options) {
    JoinOptions joining = options.joining().apply(JoinOptions.of(0, 1));
    List<RankGroup> groups = RankGroup.local(nRanks, joining);
    return rank -> rank(groups.get(rank), options);
  }

  /** Returns the rank of a group, which the rank closes. */
  PerfRank rank(RankGroup group, RankOptions options) {
    return new Rank(group, options);
  }

  private final class Rank implements PerfRank, MeasuredLibrary {
    private static final long ZEROS = 1 << 20;

    private final RankGroup group;
    private final RankOptions options;
    private final Collectives collectives;
    private final Lifecycle lifecycle = new Lifecycle("the measured rank");
    private CallBuffers buffers;
    private DeviceBuffer zeros;
    private MeasuredLibrary.Peer peer;

    Rank(RankGroup group, RankOptions options) {
      this.group = lifecycle.own(group);
      this.options = options;
      this.collectives = group.collectives();
    }

    @Override
    public int rank() {
      return group.rank();
    }

    @Override
    public int nRanks() {
      return group.nRanks();
    }

    @Override
    public String device() {
      boolean alone = collectives.transports().asSet().isEmpty();
      return group.device().description() + (alone ? "" : ", by " + collectives.transports());
    }

    @Override
    public void prepare(long bytes) {
      DeviceBuffer input = lifecycle.own(options.memory().allocate(group.device(), bytes));
      DeviceBuffer output = lifecycle.own(options.memory().allocate(group.device(), bytes));
      CallBuffers.ExpertCalls experts = lifecycle.own(new CallBuffers.ExpertCalls(group.device()));
      buffers = new CallBuffers(input, output, () -> zeros(bytes), experts, rank(), nRanks());
      if (options.register()) {
        // In the same order on all ranks.
        lifecycle.own(collectives.register(input).join());
        lifecycle.own(collectives.register(output).join());
      }
      peers.ifPresent(
          opener ->
              peer = lifecycle.own(opener.open(group.communicator(), buffers, options.timeout())));
    }

    private DeviceBuffer zeros(long bytes) {
      if (zeros == null) {
        zeros = lifecycle.own(group.device().allocate(bytes));
        ByteBuffer block =
            ByteBuffer.allocateDirect((int) Math.min(bytes, ZEROS)).order(ByteOrder.LITTLE_ENDIAN);
        for (long at = 0; at < bytes; at += ZEROS) {
          zeros.upload(at, block.clear().limit((int) Math.min(ZEROS, bytes - at)));
        }
      }
      return zeros;
    }

    @Override
    public MeasuredLibrary library() {
      return this;
    }

    @Override
    public String name() {
      return "FluxCCL";
    }

    @Override
    public PreparedCalls prepare(
        PerfCase shape, BufferAliasing placement, int length, boolean graph) {
      CollectiveCall call = buffers.call(shape, placement);
      Pipeline pipeline = collectives.pipeline();
      for (int i = 0; i < length; i++) {
        pipeline = pipeline.then(call);
      }
      if (!graph) {
        Pipeline calls = pipeline;
        return new PreparedCalls(times -> calls.run(times).toFuture());
      }
      CapturedPipeline captured = pipeline.capture();
      return new PreparedCalls(times -> captured.run(times).toFuture(), captured::close);
    }

    @Override
    public List<MeasuredLibrary> peers() {
      return peer == null ? List.of() : peer.ways();
    }

    @Override
    public List<String> algorithms(PerfCase shape, BufferAliasing placement) {
      CollectiveCall call = buffers.call(shape, placement);
      List<String> names = new ArrayList<>(collectives.algorithmsFor(call));
      if (names.size() > 1) {
        String chosen = collectives.algorithmFor(call);
        names.remove(chosen);
        names.add(0, chosen);
      }
      return names;
    }

    @Override
    public void prefer(PerfCase shape, Optional<String> algorithm) {
      collectives.prefer(shape.collective(), algorithm);
    }

    @Override
    public RankTopology topology() {
      return collectives.topology();
    }

    @Override
    public void upload(Buffer buffer, long offset, ByteBuffer source) {
      buffers
          .of(buffer)
          .upload(offset, source.order(ByteOrder.LITTLE_ENDIAN)); // a slice forgets it
    }

    @Override
    public void download(Buffer buffer, long offset, ByteBuffer target) {
      buffers.of(buffer).download(offset, target.order(ByteOrder.LITTLE_ENDIAN));
    }

    @Override
    public void barrier(Deadline deadline) {
      group.bootstrap().barrier(deadline).join();
    }

    @Override
    public List<byte[]> allGather(byte[] mine, Deadline deadline) {
      return group.bootstrap().allGather(mine, deadline).join();
    }

    @Override
    public void close() {
      lifecycle.close();
    }
  }
}

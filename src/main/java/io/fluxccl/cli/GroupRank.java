package io.fluxccl.cli;

import io.fluxccl.Deadline;
import io.fluxccl.collective.CapturedPipeline;
import io.fluxccl.collective.CollectiveCall;
import io.fluxccl.collective.Collectives;
import io.fluxccl.collective.Pipeline;
import io.fluxccl.collective.RankTopology;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.group.RankGroup;
import io.fluxccl.transport.TransportFlags;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;

/** A rank of the real library. */
final class GroupRank implements PerfRank {
  private final RankGroup group;
  private final PerfBackend.RankOptions options;
  private final Collectives collectives;
  private final List<AutoCloseable> owned = new ArrayList<>();
  private CallBuffers buffers;
  private NcclPeer peer;

  GroupRank(RankGroup group, PerfBackend.RankOptions options) {
    this.group = group;
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
    TransportFlags transports = collectives.transports();
    return transports.asSet().isEmpty()
        ? group.device().description()
        : group.device().description() + ", by " + transports;
  }

  @Override
  public void prepare(long bytes) {
    DeviceBuffer input = group.device().allocate(bytes);
    owned.add(input);
    DeviceBuffer output = group.device().allocate(bytes);
    owned.add(output);
    buffers = new CallBuffers(input, output, rank(), nRanks());
    if (options.register()) {
      // In the same order on all ranks.
      owned.add(0, collectives.register(input).join());
      owned.add(0, collectives.register(output).join());
    }
    if (options.compare()) {
      peer = new NcclPeer(group.communicator(), buffers, System.getenv(), options.timeout());
    }
  }

  @Override
  public PerfContender library() {
    return new PerfContender() {
      @Override
      public String name() {
        return "FluxCCL";
      }

      @Override
      public PerfWork prepare(PerfCase shape, Placement placement, int length, boolean graph) {
        return work(buffers.call(shape, placement), length, graph);
      }
    };
  }

  private PerfWork work(CollectiveCall call, int length, boolean graph) {
    Pipeline pipeline = collectives.pipeline();
    for (int i = 0; i < length; i++) {
      pipeline = pipeline.then(call);
    }
    if (!graph) {
      Pipeline calls = pipeline;
      return times -> calls.run(times).toFuture();
    }
    CapturedPipeline captured = pipeline.capture();
    return new PerfWork() {
      @Override
      public CompletableFuture<Void> run(int times) {
        return captured.run(times).toFuture();
      }

      @Override
      public void close() {
        captured.close();
      }
    };
  }

  @Override
  public Optional<PerfContender> peer() {
    return Optional.ofNullable(peer);
  }

  @Override
  public List<String> algorithms(PerfCase shape, Placement placement) {
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
  public void upload(PerfBuffer buffer, long offset, ByteBuffer source) {
    buffers.of(buffer).upload(offset, source);
  }

  @Override
  public void download(PerfBuffer buffer, long offset, ByteBuffer target) {
    buffers.of(buffer).download(offset, target);
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
    try {
      if (peer != null) {
        peer.close();
      }
      for (AutoCloseable each : owned) {
        each.close();
      }
    } catch (RuntimeException e) {
      throw e;
    } catch (Exception e) {
      throw new IllegalStateException("what a rank owns throws nothing checked", e);
    } finally {
      group.close();
    }
  }
}

package io.fluxccl.cli;

import io.fluxccl.DataType;
import io.fluxccl.Deadline;
import io.fluxccl.ReduceOp;
import io.fluxccl.collective.AllReduce;
import io.fluxccl.collective.AllReduceOptions;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.group.RankGroup;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/** A rank of the real library. */
final class GroupRank implements PerfRank {
  private final RankGroup group;
  private final AllReduceOptions options;
  private DeviceBuffer buffer;
  private AllReduce allReduce;

  GroupRank(RankGroup group, PerfBackend.RankOptions options) {
    this.group = group;
    AllReduceOptions timed = AllReduceOptions.DEFAULT.withTimeout(options.timeout());
    this.options = options.transport().map(timed::withTransport).orElse(timed);
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
    return group.device().description();
  }

  @Override
  public void prepare(long maxBytes) {
    buffer = group.device().allocate(maxBytes);
    allReduce = group.allReduce(buffer, options).join();
  }

  @Override
  public void upload(long offset, ByteBuffer source) {
    buffer.upload(offset, source);
  }

  @Override
  public void download(long offset, ByteBuffer target) {
    buffer.download(offset, target);
  }

  @Override
  public void enqueueAllReduce(long count, DataType type, ReduceOp op) {
    allReduce.enqueue(count, type, op);
  }

  @Override
  public CompletableFuture<Void> completion(Duration limit) {
    return allReduce.completion(limit);
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
    if (allReduce != null) {
      allReduce.close();
    }
    if (buffer != null) {
      buffer.close();
    }
    group.close();
  }
}

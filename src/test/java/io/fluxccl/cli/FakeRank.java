// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import io.fluxccl.Deadline;
import io.fluxccl.collective.RankTopology;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Collections;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;

/** A rank whose buffers are plain memory. By itself it waits for no other rank. */
abstract class FakeRank implements PerfRank {
  final ByteBuffer[] buffers = new ByteBuffer[2];
  private final int rank;
  private final int nRanks;

  FakeRank(int rank, int nRanks) {
    this.rank = rank;
    this.nRanks = nRanks;
  }

  /** Runs a collective several times. */
  abstract CompletableFuture<Void> run(PerfCase shape, BufferAliasing placement, int times);

  /** A library with these calls. */
  record FakeLibrary(String name, Calls calls) implements MeasuredLibrary {
    interface Calls {
      CompletableFuture<Void> run(PerfCase shape, BufferAliasing placement, int times);
    }

    @Override
    public PreparedCalls prepare(
        PerfCase shape, BufferAliasing placement, int length, boolean graph) {
      return new PreparedCalls(times -> calls.run(shape, placement, length * times));
    }
  }

  @Override
  public MeasuredLibrary library() {
    return new FakeLibrary("fake", this::run);
  }

  ByteBuffer output() {
    return buffers[PerfRank.Buffer.OUTPUT.ordinal()];
  }

  @Override
  public int rank() {
    return rank;
  }

  @Override
  public int nRanks() {
    return nRanks;
  }

  @Override
  public String device() {
    return "fake device " + rank;
  }

  @Override
  public void prepare(long bytes) {
    for (int i = 0; i < buffers.length; i++) {
      buffers[i] = ByteBuffer.allocate((int) bytes).order(ByteOrder.LITTLE_ENDIAN);
    }
  }

  @Override
  public void upload(PerfRank.Buffer buffer, long offset, ByteBuffer source) {
    buffers[buffer.ordinal()].put((int) offset, source, source.position(), source.remaining());
    source.position(source.limit());
  }

  @Override
  public void download(PerfRank.Buffer buffer, long offset, ByteBuffer target) {
    target.put(buffers[buffer.ordinal()].slice((int) offset, target.remaining()));
  }

  @Override
  public Optional<MeasuredLibrary> peer() {
    return Optional.empty();
  }

  @Override
  public List<String> algorithms(PerfCase shape, BufferAliasing placement) {
    return List.of();
  }

  @Override
  public void prefer(PerfCase shape, Optional<String> algorithm) {}

  @Override
  public RankTopology topology() {
    throw new UnsupportedOperationException("nothing is tuned here");
  }

  @Override
  public void barrier(Deadline deadline) {}

  @Override
  public List<byte[]> allGather(byte[] mine, Deadline deadline) {
    return Collections.nCopies(nRanks, mine);
  }

  @Override
  public void close() {}
}

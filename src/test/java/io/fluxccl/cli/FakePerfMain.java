// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import io.fluxccl.Deadline;
import io.fluxccl.cli.MeasuredLibrary.PreparedCalls;
import io.fluxccl.collective.RankTopology;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Collections;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.function.IntFunction;
import reactor.core.publisher.Flux;

/**
 * The command line with ranks that have a process each but never talk: they pretend that the others
 * answered. PRETEND={@code rank:what} makes one of them misbehave: {@code wrong}, {@code hang}, or
 * {@code exit} with code 7.
 */
final class FakePerfMain {
  static final String VARIABLE = "PRETEND";

  private FakePerfMain() {}

  public static void main(String[] args) {
    RootCommand.start(new Backend(), FakePerfMain.class, args);
  }

  private static final class Backend implements PerfBackend {
    @Override
    public PerfRank fromEnvironment(RankOptions options) {
      return new Rank(
          Integer.parseInt(System.getenv(RankVariables.RANK)),
          Integer.parseInt(System.getenv(RankVariables.RANKS)));
    }

    @Override
    public Flux<Generation> generations(RankOptions options) {
      throw new UnsupportedOperationException("these ranks never heal");
    }

    @Override
    public IntFunction<PerfRank> inProcess(int nRanks, RankOptions options) {
      throw new UnsupportedOperationException("these ranks have a process each");
    }

    @Override
    public List<String> devices() {
      return List.of();
    }

    @Override
    public List<String> algorithms() {
      return List.of();
    }
  }

  private static final class Rank implements PerfRank {
    private final int rank;
    private final int nRanks;
    private final String behaviour;
    private final ByteBuffer[] buffers = new ByteBuffer[2];

    Rank(int rank, int nRanks) {
      this.rank = rank;
      this.nRanks = nRanks;
      String[] pretend = System.getenv().getOrDefault(VARIABLE, "-1:").split(":", 2);
      this.behaviour = Integer.parseInt(pretend[0]) == rank ? pretend[1] : "";
      System.err.println("pid " + ProcessHandle.current().pid());
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
      return "nothing";
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
    public MeasuredLibrary library() {
      return new MeasuredLibrary() {
        @Override
        public String name() {
          return "pretence";
        }

        @Override
        public PreparedCalls prepare(
            PerfCase shape, BufferAliasing placement, int length, boolean graph) {
          return new PreparedCalls(times -> allReduce(shape));
        }
      };
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

    private CompletableFuture<Void> allReduce(PerfCase shape) {
      ByteBuffer output = buffers[PerfRank.Buffer.OUTPUT.ordinal()];
      ByteBuffer expected = new ReductionPattern(shape.type(), shape.op(), nRanks).expected();
      output.put(0, expected, 0, (int) (shape.count() * shape.type().size()));
      if (behaviour.equals("wrong")) {
        output.put(0, (byte) ~output.get(0));
      }
      if (behaviour.equals("exit")) {
        Runtime.getRuntime().halt(7);
      }
      return behaviour.equals("hang")
          ? new CompletableFuture<>()
          : CompletableFuture.completedFuture(null);
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
}

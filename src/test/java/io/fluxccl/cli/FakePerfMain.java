// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import java.nio.ByteBuffer;
import java.util.concurrent.CompletableFuture;

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

  private static final class Backend extends FakeBackend {
    @Override
    public PerfRank fromEnvironment(RankOptions options) {
      return new Rank(
          Integer.parseInt(System.getenv(RankVariables.RANK)),
          Integer.parseInt(System.getenv(RankVariables.RANKS)));
    }
  }

  private static final class Rank extends FakeRank {
    private final String behaviour;

    Rank(int rank, int nRanks) {
      super(rank, nRanks);
      String[] pretend = System.getenv().getOrDefault(VARIABLE, "-1:").split(":", 2);
      this.behaviour = Integer.parseInt(pretend[0]) == rank ? pretend[1] : "";
      System.err.println("pid " + ProcessHandle.current().pid());
    }

    @Override
    CompletableFuture<Void> run(PerfCase shape, BufferAliasing placement, int times) {
      ByteBuffer expected = new ReductionPattern(shape.type(), shape.op(), nRanks()).expected();
      output().put(0, expected, 0, (int) (shape.count() * shape.type().size()));
      if (behaviour.equals("wrong")) {
        output().put(0, (byte) ~output().get(0));
      }
      if (behaviour.equals("exit")) {
        Runtime.getRuntime().halt(7);
      }
      return behaviour.equals("hang")
          ? new CompletableFuture<>()
          : CompletableFuture.completedFuture(null);
    }
  }
}

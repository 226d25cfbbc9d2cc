// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.faults;

import ch.qos.logback.classic.Level;
import ch.qos.logback.classic.Logger;
import io.fluxccl.FluxCclException;
import io.fluxccl.ReduceOp;
import io.fluxccl.collective.Collectives;
import io.fluxccl.device.IntView;
import io.fluxccl.group.JoinOptions;
import io.fluxccl.group.RankGroup;
import io.fluxccl.transport.Transport;
import java.io.IOException;
import java.util.List;
import java.util.OptionalInt;
import java.util.concurrent.locks.LockSupport;
import org.slf4j.LoggerFactory;

/**
 * A rank that all-reduces in an endless loop and checks each result. After it reads a line, it
 * parks and skips all further calls. Prints "joining", "joined", "steps N" every tenth of a second,
 * "silent R" and "no rank is silent" when that changes, "forgot N", the number of the first call
 * that it skips, and "failed CODE rank=R MESSAGE".
 */
final class AllReduceLoopRank {
  private static final long TELL_NANOS = 100_000_000;

  /** Leaves the processors to other tests about half of the time. */
  private static final long PAUSE_NANOS = 2_000_000;

  /** The variable that names the transport, if it is not chosen for each pair of ranks. */
  static final String TRANSPORT = "STEADY_TRANSPORT";

  private static volatile boolean forgets;

  private AllReduceLoopRank() {}

  private static void listen() {
    try {
      forgets = System.in.read() >= 0;
    } catch (IOException e) {
      System.exit(1);
    }
  }

  private static JoinOptions options() {
    JoinOptions options = JoinOptions.fromEnvironment();
    String transport = System.getenv(TRANSPORT);
    return transport == null
        ? options
        : options.withCollectives(
            options.collectives().withTransport(Transport.valueOf(transport)));
  }

  private static void tellSilent(OptionalInt rank) {
    System.out.println(rank.isPresent() ? "silent " + rank.getAsInt() : "no rank is silent");
  }

  /** Arguments: how many numbers it reduces. */
  public static void main(String[] args) {
    int count = Integer.parseInt(args[0]);
    Thread listener = new Thread(AllReduceLoopRank::listen, "listener");
    listener.setDaemon(true);
    listener.start();
    // Each loss of a link, not one a minute.
    for (String each : List.of("transport.net.Resumption", "bootstrap.Link")) {
      ((Logger) LoggerFactory.getLogger("io.fluxccl." + each)).setLevel(Level.DEBUG);
    }
    System.out.println("joining");
    try (RankGroup group = RankGroup.join(options()).join();
        IntView mine = group.device().allocateInts(count);
        IntView sum = group.device().allocateInts(count)) {
      System.out.println("joined");
      group.silentRank().skip(1).subscribe(AllReduceLoopRank::tellSilent);
      Collectives collectives = group.collectives();
      int ranks = group.nRanks();
      long told = System.nanoTime();
      for (int step = 0; ; step++) {
        if (forgets) {
          System.out.println("forgot " + (step + 1));
          while (true) {
            LockSupport.park();
          }
        }
        for (int i = 0; i < count; i++) {
          mine.put(i, step * 31 + i + group.rank());
        }
        collectives.allReduce(mine, sum, ReduceOp.SUM).block();
        for (int i = 0; i < count; i++) {
          int expected = ranks * (step * 31 + i) + ranks * (ranks - 1) / 2;
          if (sum.get(i) != expected) {
            System.out.println("wrong step=" + step + " at=" + i + " got=" + sum.get(i));
            System.exit(1);
          }
        }
        if (System.nanoTime() - told > TELL_NANOS) {
          told = System.nanoTime();
          System.out.println("steps " + step);
        }
        LockSupport.parkNanos(PAUSE_NANOS);
      }
    } catch (RuntimeException e) {
      FluxCclException failure = FluxCclException.from(e);
      System.out.println(
          "failed " + failure.code() + " rank=" + failure.rank() + " " + failure.getMessage());
    }
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.faults;

import io.fluxccl.ReduceOp;
import io.fluxccl.device.IntView;
import io.fluxccl.group.JoinOptions;
import io.fluxccl.group.RankGroup;
import io.fluxccl.transport.Transport;
import java.io.IOException;
import java.util.concurrent.locks.LockSupport;

/**
 * A rank that all-reduces in an endless loop. After it reads a line, it parks and skips all further
 * calls. Prints "joined", and "forgot N", the number of the first call that it skips.
 */
final class SkippingRank {
  private static final int COUNT = 4096;
  private static final long PAUSE_NANOS = 5_000_000;

  private static volatile boolean forgets;

  private SkippingRank() {}

  private static void listen() {
    try {
      // Any line; the end of the input is the end of the test.
      forgets = System.in.read() >= 0;
      while (System.in.read() >= 0) {
        // the rest of the line
      }
      System.exit(0);
    } catch (IOException e) {
      System.exit(1);
    }
  }

  public static void main(String[] args) {
    Thread listener = new Thread(SkippingRank::listen, "listener");
    listener.setDaemon(true);
    listener.start();
    JoinOptions options = JoinOptions.fromEnvironment();
    Transport transport = Transport.valueOf(args[0]);
    try (RankGroup group =
            RankGroup.join(options.withCollectives(options.collectives().withTransport(transport)))
                .join();
        IntView sum = group.device().allocateInts(COUNT)) {
      System.out.println("joined");
      for (long call = 1; ; call++) {
        if (forgets) {
          System.out.println("forgot " + call);
          while (true) {
            LockSupport.park();
          }
        }
        group.collectives().allReduce(sum, ReduceOp.MAX).block();
        LockSupport.parkNanos(PAUSE_NANOS);
      }
    }
  }
}

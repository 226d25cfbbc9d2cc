// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.group;

import io.fluxccl.ReduceOp;
import io.fluxccl.device.IntView;
import io.fluxccl.transport.Transport;
import java.io.IOException;

/**
 * A rank with two sub-groups of all ranks. After a line of input it closes all three groups, one by
 * one, and prints how many milliseconds that took. Started by {@link RankDeathTest}.
 */
final class ClosingRank {
  private ClosingRank() {}

  public static void main(String[] args) throws IOException {
    JoinOptions options = JoinOptions.fromEnvironment();
    options = options.withCollectives(options.collectives().withTransport(Transport.ETHERNET));
    RankGroup group = RankGroup.join(options).join();
    RankGroup first = group.split("first", 0, 0).join().orElseThrow();
    RankGroup second = group.split("second", 0, 0).join().orElseThrow();
    try (IntView x = group.device().allocateInts(16)) {
      group.collectives().allReduce(x, ReduceOp.SUM).block();
      first.collectives().allReduce(x, ReduceOp.SUM).block();
    }
    System.out.println("joined");
    System.in.read();
    long begin = System.nanoTime();
    first.close();
    second.close();
    group.close();
    System.out.println("closed after " + (System.nanoTime() - begin) / 1_000_000);
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.docs;

import io.fluxccl.ReduceOp;
import io.fluxccl.device.IntView;
import io.fluxccl.group.RankGroup;
import java.util.Arrays;
import reactor.core.publisher.Mono;

// The program of docs/0-ten-minutes.md.
public final class FirstAllReduce {
  private FirstAllReduce() {}

  public static void main(String[] args) {
    RankGroup.fromEnvironment()
        .join()
        .run(
            group -> {
              int[] sums = sums(group).block();
              System.out.println("rank " + group.rank() + ": " + Arrays.toString(sums));
            });
  }

  static Mono<int[]> sums(RankGroup group) {
    return Mono.using(
        () -> group.device().allocateInts(4),
        x -> {
          for (int i = 0; i < 4; i++) {
            x.put(i, 10 * group.rank() + i);
          }
          return group
              .collectives()
              .allReduce(x, ReduceOp.SUM)
              .then(Mono.fromCallable(() -> read(x)));
        },
        IntView::close);
  }

  private static int[] read(IntView x) {
    return new int[] {x.get(0), x.get(1), x.get(2), x.get(3)};
  }
}

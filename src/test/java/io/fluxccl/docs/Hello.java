// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.docs;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.group.RankGroup;
import java.time.Duration;

public class Hello {
  public static void main(String[] args) {
    RankGroup.fromEnvironment()
        .join()
        .run(
            group -> {
              try (DeviceBuffer x = group.device().allocate(4 << 20)) {
                group
                    .collectives()
                    .allReduce(x, DataType.FLOAT32, ReduceOp.SUM)
                    .timeout(Duration.ofSeconds(30))
                    .doOnSuccess(
                        done ->
                            System.out.println(
                                "rank " + group.rank() + " of " + group.nRanks() + ": done"))
                    .block();
              }
            });
  }
}

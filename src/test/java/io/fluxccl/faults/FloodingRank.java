// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.faults;

import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.group.RankGroup;
import io.fluxccl.group.StepLoop;
import java.io.IOException;
import java.util.concurrent.CompletionException;
import reactor.core.publisher.Mono;

/**
 * Rank 0 of two, which gives the other one more than it takes, by steps or by messages, as soon as
 * it reads a line. The other rank follows or does nothing. Prints "joined", and "failed CODE rank=R
 * MESSAGE".
 */
final class FloodingRank {
  private static final int MESSAGE = 1 << 20;
  private static final int TAG = 7;

  private FloodingRank() {}

  public static void main(String[] args) throws IOException {
    try (RankGroup group = RankGroup.fromEnvironment().join()) {
      StepLoop loop = StepLoop.of(group, command -> Mono.empty());
      System.out.println("joined");
      if (group.rank() == 1) {
        loop.follow().block();
      }
      int go = System.in.read();
      byte[] message = new byte[args[0].equals("steps") ? StepLoop.DEFAULT_COMMAND_BYTES : MESSAGE];
      while (go >= 0 && group.communicator().failure() == null) {
        if (args[0].equals("steps")) {
          loop.step(message).block();
        } else {
          // Its future is not awaited; that of the message to itself is, which is sent after it.
          group.bootstrap().send(1, TAG, message, Deadline.never());
          group.bootstrap().send(0, TAG, new byte[1], Deadline.never()).join();
        }
      }
      tell(group.communicator().failure());
    } catch (FluxCclException | CompletionException e) {
      tell(FluxCclException.from(e));
    }
  }

  private static void tell(FluxCclException failure) {
    System.out.println(
        "failed " + failure.code() + " rank=" + failure.rank() + " " + failure.getMessage());
  }
}

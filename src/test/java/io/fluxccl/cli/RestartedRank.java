// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import io.fluxccl.DataType;
import io.fluxccl.FluxCclException;
import io.fluxccl.ReduceOp;
import io.fluxccl.device.IntView;
import io.fluxccl.group.JoinOptions;
import io.fluxccl.group.RankGroup;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.CompletionException;

/**
 * A rank of a job that {@link LaunchRestartTest} starts. It all-reduces until a failure and prints
 * that. With "heals", its job has generations, and it exits with code 0 after one all-reduce of the
 * second generation. With "once", it exits with code 1 after the failure, or with code 0 at once if
 * a file exists at its start.
 */
final class RestartedRank {
  private RestartedRank() {}

  public static void main(String[] args) {
    boolean heals = args[0].equals("heals");
    boolean again = !heals && Files.exists(Path.of(args[1]));
    System.out.println("pid " + ProcessHandle.current().pid());
    Iterable<RankGroup> groups =
        heals
            ? RankGroup.generations(JoinOptions.fromEnvironment()).toIterable(1)
            : () -> java.util.List.of(RankGroup.fromEnvironment().join()).iterator();
    boolean failed = false;
    for (RankGroup group : groups) {
      failed = !run(group, again || group.generation().number() == 2);
    }
    // Threads that are left would keep it from ending otherwise, which is no matter here.
    System.exit(failed ? ExitCode.FAILURE : ExitCode.OK);
  }

  private static boolean run(RankGroup group, boolean last) {
    try (group;
        IntView view = group.device().allocateInts(4)) {
      do {
        view.put(0, 1);
        group.collectives().allReduce(view.buffer(), DataType.INT32, ReduceOp.SUM).block();
        System.out.printf("generation %d sum %d%n", group.generation().number(), view.get(0));
      } while (!last);
      return true;
    } catch (FluxCclException | CompletionException e) {
      FluxCclException failure = FluxCclException.from(e);
      System.out.printf(
          "%s of rank %d: %s%n", failure.code(), failure.rank(), failure.getMessage());
      return false;
    }
  }
}

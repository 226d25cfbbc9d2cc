// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.spark;

import io.fluxccl.Aborted;
import io.fluxccl.FluxCclException;
import io.fluxccl.bootstrap.UniqueId;
import io.fluxccl.group.JoinOptions;
import io.fluxccl.group.RankGroup;
import java.util.concurrent.CompletionException;
import java.util.function.Function;
import org.apache.spark.BarrierTaskContext;

/** A group whose ranks are the tasks of a barrier stage: rank i is the task of partition i. */
public final class BarrierGroup {
  private BarrierGroup() {}

  /**
   * Joins the group of this task's stage, does the task's work in it, and leaves. Every task of the
   * stage calls it. A retry of the stage forms another group.
   *
   * @param task {@code BarrierTaskContext.get()}
   * @param work its failure fails the work of all tasks at once, with an error that names this one.
   *     So no task waits for it in a slot that a retry needs
   * @return what {@code work} returned
   * @throws FluxCclException if not all ranks joined
   */
  public static <T> T run(BarrierTaskContext task, Function<RankGroup, T> work) {
    // The id holds the job's secret. It travels over Spark's own connections.
    String created = task.partitionId() == 0 ? UniqueId.create().toBase64() : "";
    UniqueId id = UniqueId.fromBase64(task.allGather(created)[0]);
    JoinOptions options =
        JoinOptions.of(task.partitionId(), task.numPartitions())
            .withName("stage-" + task.stageId() + "." + task.stageAttemptNumber())
            .withUniqueId(id);
    try (RankGroup group = RankGroup.join(options).join()) {
      try {
        return work.apply(group);
      } catch (RuntimeException | Error e) {
        int rank = group.rank();
        group.communicator().abort(Aborted.of(rank, "the task of rank %s failed: %s", rank, e));
        throw e;
      }
    } catch (CompletionException e) {
      throw FluxCclException.from(e);
    }
  }
}

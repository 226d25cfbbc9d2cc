// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.group;

import io.fluxccl.Aborted;
import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.bootstrap.Meeting;
import io.fluxccl.bootstrap.Membership;
import io.fluxccl.bootstrap.TcpBootstrap;
import io.fluxccl.concurrent.BlockingTasks;
import java.util.OptionalInt;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicBoolean;
import org.agrona.CloseHelper;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * {@link RankGroup#shrink} of one group: the surviving ranks join a rendezvous, close the failed
 * group, and join the smaller one. If the set-up of that fails, they join the rendezvous again.
 * Steps run one after the other.
 */
final class Shrinking {
  private static final Logger LOG = LoggerFactory.getLogger(Shrinking.class);

  private final RankGroup last;
  private final JoinOptions options;
  private final AtomicBoolean begun = new AtomicBoolean();
  private Deadline deadline;
  private boolean ownsDevice;

  Shrinking(RankGroup last, JoinOptions options) {
    this.last = last;
    this.options = options;
  }

  CompletableFuture<RankGroup> begin() {
    FluxCclException refusal = refusal();
    if (refusal == null && !begun.compareAndSet(false, true)) {
      refusal = InvalidUsage.of("shrink on rank %s: called before", last.rank());
    }
    return refusal == null
        ? meet((TcpBootstrap) last.bootstrap())
            .whenComplete((next, failure) -> begun.set(false))
            .whenCompleteAsync((next, failure) -> {}, BlockingTasks.EXECUTOR)
        : CompletableFuture.failedFuture(refusal);
  }

  private FluxCclException refusal() {
    String why = null;
    FluxCclException cause = last.communicator().failure();
    if (last.renewable) {
      why = "RankGroup.generations emits the next group by itself";
    } else if (last.bootstrap().job() != last.bootstrap()) {
      why = "this is a sub-group; shrink the job's group, and form it again";
    } else if (!(last.bootstrap() instanceof TcpBootstrap)) {
      why = "the ranks share a JVM, and none of them dies alone";
    } else if (last.closing.hasBegun()) {
      why = "this group is closed";
    } else if (cause == null) {
      why = "this group has not failed; without() forms a smaller one";
    } else if (cause.rank() == last.rank() && !(cause instanceof Aborted)) {
      String text = "shrink on rank %s: the others continue without it; the failure names it: %s";
      return Aborted.of(last.rank(), text, last.rank(), cause.getMessage());
    }
    return why == null ? null : InvalidUsage.of("shrink on rank %s: %s", last.rank(), why);
  }

  private CompletableFuture<RankGroup> meet(TcpBootstrap failed) {
    deadline = Deadline.after(options.joinTimeout());
    Membership place = Membership.of(failed, last.generation().number());
    Meeting meeting = new Meeting(failed, place.generation());
    return meet(meeting, place, last.communicator().failure())
        .whenComplete((next, failure) -> end(meeting, next));
  }

  private CompletableFuture<RankGroup> meet(
      Meeting meeting, Membership before, FluxCclException cause) {
    OptionalInt lost = Joining.lostRank(cause, before.rank());
    return meeting
        .attend(before, lost, deadline)
        .thenCompose(
            place -> {
              takeDevice();
              return Joining.join(place, cause, connected -> last.device(), options)
                  .exceptionallyCompose(failure -> again(meeting, place, failure));
            });
  }

  private void takeDevice() {
    if (!ownsDevice && !last.closing.beginWithoutDevice()) {
      throw InvalidUsage.of("shrink on rank %s: the group was closed meanwhile", last.rank());
    }
    ownsDevice = true;
  }

  private CompletableFuture<RankGroup> again(Meeting meeting, Membership place, Throwable failure) {
    FluxCclException reason = FluxCclException.from(failure);
    if (deadline.expired() || !Joining.mayBeHealed(reason)) {
      return CompletableFuture.failedFuture(reason);
    }
    LOG.info("a smaller group failed while it was set up: {}", reason.getMessage());
    return meet(meeting, place, reason);
  }

  private void end(Meeting meeting, RankGroup next) {
    meeting.close();
    if (next != null) {
      next.closing.takeDevice();
    } else if (ownsDevice) {
      last.closeAsync()
          .whenCompleteAsync(
              (closed, trouble) -> CloseHelper.quietClose(last.device()), BlockingTasks.EXECUTOR);
    }
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.group;

import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.bootstrap.Meeting;
import io.fluxccl.bootstrap.Membership;
import io.fluxccl.bootstrap.RankEnvironment;
import io.fluxccl.bootstrap.TcpBootstrap;
import io.fluxccl.concurrent.BlockingTasks;
import io.fluxccl.device.Device;
import java.util.OptionalInt;
import java.util.concurrent.CompletableFuture;
import org.agrona.CloseHelper;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import reactor.core.publisher.Flux;
import reactor.core.publisher.FluxSink;

/**
 * One subscription of {@link RankGroup#generations}: joins the rendezvous and the generation, emits
 * the group, and begins again when the group has failed. Guarded by itself.
 */
final class Generations {
  private static final Logger LOG = LoggerFactory.getLogger(Generations.class);

  private final JoinOptions options;
  private final FluxSink<RankGroup> sink;
  private final Meeting meeting;
  private Device device;
  private Membership membership;
  private RankGroup group;
  private Deadline deadline;
  private boolean over;

  /** Completes when all groups that have ended are closed. */
  private CompletableFuture<Void> closed = CompletableFuture.completedFuture(null);

  private Generations(JoinOptions options, FluxSink<RankGroup> sink) {
    RankEnvironment place = options.place();
    int least = options.leastRanks() == 0 ? place.nRanks() : options.leastRanks();
    this.options = options;
    this.sink = sink;
    this.meeting =
        new Meeting(place, options.bootstrapOptions(), least, options.replacementTimeout());
  }

  static Flux<RankGroup> of(JoinOptions options) {
    return Flux.create(
        sink -> {
          Joining.warnOf(options.place());
          Generations generations = new Generations(options, sink);
          sink.onDispose(generations::end);
          generations.meet(null);
        });
  }

  /** Waits for the next generation and joins it. */
  private synchronized void meet(FluxCclException cause) {
    if (over) {
      return;
    }
    if (cause == null || deadline == null) {
      deadline = Deadline.after(options.joinTimeout());
    }
    OptionalInt lost =
        membership == null ? OptionalInt.empty() : Joining.lostRank(cause, membership.rank());
    meeting
        .attend(membership, lost, deadline)
        .thenCompose(place -> join(place, cause))
        .whenCompleteAsync(this::joined, BlockingTasks.EXECUTOR);
  }

  private CompletableFuture<RankGroup> join(Membership place, FluxCclException cause) {
    synchronized (this) {
      membership = place;
    }
    CompletableFuture<RankGroup> joining = Joining.join(place, cause, this::device, options);
    return joining.thenApply(
        next -> {
          next.renewable = true;
          return next;
        });
  }

  /** Returns the device, which all generations share. */
  private synchronized Device device(TcpBootstrap bootstrap) {
    if (device == null) {
      int localRank = options.place().localRank().orElse(bootstrap.localRank());
      device = Joining.openDevice(bootstrap, localRank, options);
    }
    return device;
  }

  private void joined(RankGroup next, Throwable failure) {
    if (failure != null) {
      failedToJoin(FluxCclException.from(failure));
      return;
    }
    synchronized (this) {
      if (over) {
        closeAll(next);
        return;
      }
      group = next;
      deadline = null;
      membership.newcomers().thenRun(() -> next.newcomers.complete(null));
    }
    LOG.info(
        "{}rank {} of {} in generation {}",
        options.name().isEmpty() ? "" : options.name() + ": ",
        next.rank(),
        next.nRanks(),
        next.generation().number());
    sink.next(next);
    next.communicator().failed().thenAcceptAsync(this::ended, BlockingTasks.EXECUTOR);
  }

  private void failedToJoin(FluxCclException reason) {
    boolean again;
    synchronized (this) {
      again = membership != null && !deadline.expired() && Joining.mayBeHealed(reason);
    }
    if (again) {
      LOG.info("a generation failed while it was set up: {}", reason.getMessage());
      meet(reason);
    } else {
      sink.error(reason.inJob(options.name()));
    }
  }

  /** Called when the current group has failed or was closed. */
  private void ended(FluxCclException reason) {
    RankGroup last;
    synchronized (this) {
      last = group;
      group = null;
    }
    if (last == null) {
      return; // this subscription closes it
    }
    boolean closedHere = last.communicator().isClosed() || last.closing.hasLeft(reason);
    CompletableFuture<Void> closing = last.closeAsync().exceptionally(Generations::logged);
    synchronized (this) {
      closed = CompletableFuture.allOf(closed, closing);
    }
    if (closedHere) {
      closing.thenRunAsync(sink::complete, BlockingTasks.EXECUTOR);
    } else {
      meet(reason);
    }
  }

  private static Void logged(Throwable failure) {
    LOG.warn("a failed generation could not be closed entirely: {}", failure.getMessage());
    return null;
  }

  /** Called when the Flux has completed or failed, or was cancelled. */
  private void end() {
    RankGroup last;
    synchronized (this) {
      if (over) {
        return;
      }
      over = true;
      last = group;
      group = null;
    }
    meeting.close();
    closeAll(last);
  }

  /** Closes a group, and the device after this group and all earlier ones. */
  private synchronized void closeAll(RankGroup last) {
    CompletableFuture<Void> closing =
        last == null ? CompletableFuture.completedFuture(null) : last.closeAsync();
    CompletableFuture.allOf(closed, closing)
        .whenCompleteAsync((done, failure) -> closeDevice(), BlockingTasks.EXECUTOR);
  }

  private synchronized void closeDevice() {
    CloseHelper.quietClose(device);
    device = null;
  }
}

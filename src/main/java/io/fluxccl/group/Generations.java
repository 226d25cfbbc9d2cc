// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.group;

import io.fluxccl.FluxCclException;
import io.fluxccl.bootstrap.Job;
import io.fluxccl.bootstrap.TcpBootstrap;
import io.fluxccl.concurrent.BlockingTasks;
import io.fluxccl.device.Device;
import java.util.concurrent.CompletableFuture;
import org.agrona.CloseHelper;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import reactor.core.publisher.Flux;
import reactor.core.publisher.FluxSink;

/**
 * One subscription of {@link RankGroup#generations}: joins a group, emits it, and joins the next
 * one after it has failed. Owns the job and the device, which all groups share. Guarded by itself.
 */
final class Generations {
  private static final Logger LOG = LoggerFactory.getLogger(Generations.class);

  private final JoinOptions options;
  private final FluxSink<RankGroup> sink;
  private final Job job;
  private Device device;
  private RankGroup group;
  private boolean over;

  /** Completes when all groups that have ended are closed. */
  private CompletableFuture<Void> closed = CompletableFuture.completedFuture(null);

  private Generations(JoinOptions options, FluxSink<RankGroup> sink) {
    int all = options.place().nRanks();
    int least = options.leastRanks() == 0 ? all : options.leastRanks();
    this.options = options;
    this.sink = sink;
    this.job =
        Job.of(options.place(), options.bootstrapOptions(), least, options.replacementTimeout());
  }

  static Flux<RankGroup> of(JoinOptions options) {
    return Flux.create(
        sink -> {
          Joining.warnOf(options.place());
          // A device that this process lacks fails it before it is a rank of the others.
          options.device().gpuFor(0);
          Generations generations = new Generations(options, sink);
          sink.onDispose(generations::end);
          generations.join(null);
        });
  }

  private void join(FluxCclException cause) {
    new Joining(options, (failed, limit) -> job.join(limit), this::device, false)
        .join(null, cause)
        .whenCompleteAsync(this::joined, BlockingTasks.EXECUTOR);
  }

  /** Returns the device, which all generations share. */
  private synchronized Device device(TcpBootstrap bootstrap) {
    if (device == null) {
      device = Joining.openDevice(bootstrap, options);
    }
    return device;
  }

  private void joined(RankGroup next, Throwable failure) {
    synchronized (this) {
      if (over) {
        closeAll(next);
        return;
      }
      group = next;
    }
    if (failure != null) {
      sink.error(FluxCclException.from(failure).inJob(options.name()));
      return;
    }
    next.renewable = true;
    LOG.info(
        "{}rank {} of {} in generation {}",
        options.name().isEmpty() ? "" : options.name() + ": ",
        next.rank(),
        next.nRanks(),
        next.generation().number());
    sink.next(next);
    next.communicator().failed().thenAcceptAsync(this::ended, BlockingTasks.EXECUTOR);
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
      join(reason);
    }
  }

  private static Void logged(Throwable failure) {
    LOG.warn("a failed generation could not be closed entirely: {}", failure.getMessage());
    return null;
  }

  /** Called when the Flux has completed or failed, or was cancelled. */
  private synchronized void end() {
    if (!over) {
      over = true;
      closeAll(group);
      group = null;
    }
  }

  /** Closes a group, or ends a join; then, after all earlier groups, the job and the device. */
  private synchronized void closeAll(RankGroup last) {
    CompletableFuture<Void> closing = CompletableFuture.completedFuture(null);
    if (last == null) {
      job.close();
    } else {
      closing = last.closeAsync();
    }
    CompletableFuture.allOf(closed, closing)
        .whenCompleteAsync((done, failure) -> closeJob(), BlockingTasks.EXECUTOR);
  }

  private synchronized void closeJob() {
    job.close();
    CloseHelper.quietClose(device);
    device = null;
  }
}

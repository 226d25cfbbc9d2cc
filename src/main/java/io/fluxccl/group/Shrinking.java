// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.group;

import io.fluxccl.Aborted;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.bootstrap.TcpBootstrap;
import io.fluxccl.concurrent.BlockingTasks;
import io.fluxccl.device.Device;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicBoolean;
import org.agrona.CloseHelper;

/**
 * {@link RankGroup#shrink} of one group: after the surviving ranks have joined a smaller group,
 * which takes over the device, the failed one is closed.
 */
final class Shrinking {
  private final RankGroup last;
  private final AtomicBoolean begun = new AtomicBoolean();
  private boolean ownsDevice;

  Shrinking(RankGroup last) {
    this.last = last;
  }

  CompletableFuture<RankGroup> begin() {
    FluxCclException refusal = refusal();
    if (refusal == null && !begun.compareAndSet(false, true)) {
      refusal = InvalidUsage.of("shrink on rank %s: called before", last.rank());
    }
    if (refusal != null) {
      return CompletableFuture.failedFuture(refusal);
    }
    return new Joining(last.options, TcpBootstrap::shrink, next -> takeDevice(), false)
        .join((TcpBootstrap) last.bootstrap(), last.communicator().failure())
        .whenCompleteAsync((next, failure) -> end(next), BlockingTasks.EXECUTOR);
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
      String text = "shrink on rank %s: the others continue without it in generation %s: %s";
      long next = last.generation().number() + 1;
      return Aborted.of(last.rank(), text, last.rank(), next, cause.getMessage());
    }
    return why == null ? null : InvalidUsage.of("shrink on rank %s: %s", last.rank(), why);
  }

  /** Begins to close the failed group. */
  private Device takeDevice() {
    if (!ownsDevice && !last.closing.beginWithoutDevice()) {
      throw InvalidUsage.of("shrink on rank %s: the group was closed meanwhile", last.rank());
    }
    ownsDevice = true;
    return last.device();
  }

  private void end(RankGroup next) {
    begun.set(false);
    if (next != null) {
      next.closing.takeDevice();
    } else if (ownsDevice) {
      last.closeAsync()
          .whenCompleteAsync(
              (closed, trouble) -> CloseHelper.quietClose(last.device()), BlockingTasks.EXECUTOR);
    }
  }
}

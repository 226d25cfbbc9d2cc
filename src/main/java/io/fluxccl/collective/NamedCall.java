// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.InvalidUsage;
import io.fluxccl.collective.NamedOrder.Announcement;
import java.util.List;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import reactor.core.publisher.Mono;
import reactor.core.publisher.MonoSink;

/** One subscription to a named operation. */
final class NamedCall {
  private static final Logger LOG = LoggerFactory.getLogger(NamedCall.class);

  private final String name;
  private final CollectiveCall call;
  private final MonoSink<Void> sink;
  private final long limitNanos;
  private volatile boolean isDetached;

  /** When it was announced, by the agent's clock. */
  private long startNanos;

  NamedCall(String name, CollectiveCall call, MonoSink<Void> sink, long limitNanos) {
    this.name = name;
    this.call = call;
    this.sink = sink;
    this.limitNanos = limitNanos;
    sink.onCancel(() -> isDetached = true);
  }

  String name() {
    return name;
  }

  void start(long agentNanos) {
    startNanos = agentNanos;
  }

  /** Returns whether its limit has passed for longer than a time. */
  boolean isLate(long agentNanos, long graceNanos) {
    return agentNanos - startNanos - graceNanos > limitNanos;
  }

  Announcement announcement(long number) {
    long what = CallSignature.what(call);
    return new Announcement(name, number, what, CallSignature.count(call), limitNanos);
  }

  /** Enqueues the operation. */
  void run(Lane lane) {
    Mono<Void> run = lane.run(List.of(new Step.Collect(call)), this);
    // Not cancelled with the subscriber: the other ranks count on this rank's part.
    run.contextWrite(sink.contextView())
        .subscribe(
            done -> {},
            reason -> {
              if (reason instanceof InvalidUsage refusal) {
                lane.communicator.abort(refusal); // the other ranks have enqueued theirs
              }
              fail(reason);
            },
            this::succeed);
  }

  private void succeed() {
    signal(sink::success);
  }

  void fail(Throwable reason) {
    if (!isDetached) {
      signal(() -> sink.error(reason));
    }
  }

  /** Signals the subscriber. Its exception must not reach the calls of others. */
  private void signal(Runnable signal) {
    try {
      signal.run();
    } catch (RuntimeException | Error e) {
      LOG.warn("{}: a subscriber failed", this, e);
    }
  }

  @Override
  public String toString() {
    return call + " of name '" + name + "'";
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.DataType;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.collective.NamedOrder.Announcement;
import io.fluxccl.trace.Snapshot;
import java.util.List;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import reactor.core.publisher.MonoSink;

/** One subscription to a named operation. */
final class NamedCall {
  private static final Logger LOG = LoggerFactory.getLogger(NamedCall.class);

  private final String name;
  private final CollectiveCall call;

  /** The type as which its elements travel; null: their own. */
  private final DataType wire;

  private final MonoSink<Void> sink;
  private final long limitNanos;
  private volatile boolean isDetached;

  /** When it was announced, by the agent's clock. */
  private long startNanos;

  /** On rank 0: when it was subscribed to, by the clock of its limits. */
  private long limitFromNanos;

  private final long subscribedNanos = System.nanoTime();

  NamedCall(String name, CollectiveCall call, DataType wire, MonoSink<Void> sink, long limitNanos) {
    this.name = name;
    this.call = call;
    this.wire = wire;
    this.sink = sink;
    this.limitNanos = limitNanos;
    sink.onCancel(() -> isDetached = true);
  }

  String name() {
    return name;
  }

  void limitFrom(long orderNanos) {
    limitFromNanos = orderNanos;
  }

  long limitFromNanos() {
    return limitFromNanos;
  }

  void start(long agentNanos) {
    startNanos = agentNanos;
  }

  /** Returns what a dump shows of a call that waits for other ranks. */
  Snapshot snapshot() {
    return Snapshot.EMPTY
        .with("name", name)
        .with("call", call.collective().label())
        .with("since_ns", System.nanoTime() - subscribedNanos);
  }

  /** Returns whether its limit has passed for longer than a time. */
  boolean isLate(long agentNanos, long graceNanos) {
    return agentNanos - startNanos - graceNanos > limitNanos;
  }

  Announcement announcement(long number) {
    long what = CallSignature.what(call, wire);
    return new Announcement(name, number, what, CallSignature.count(call), limitNanos);
  }

  /**
   * Enqueues operations; several of them as one bucket.
   *
   * @param buckets makes a bucket
   * @param over called when the operation is over, before the subscribers know
   */
  static void run(List<NamedCall> calls, Lane lane, NamedBuckets buckets, Runnable over) {
    Object what = calls.size() == 1 ? calls.get(0) : new Fused(calls);
    Step step;
    try {
      step = step(calls, buckets);
    } catch (RuntimeException | Error e) { // an Error, too, must reach the subscribers
      failed(calls, lane, over, e);
      return;
    }
    // Not cancelled with a subscriber: the other ranks count on this rank's part.
    Run.mono(lane, List.of(step), what)
        .subscribe(
            null,
            reason -> failed(calls, lane, over, reason),
            () -> {
              over.run();
              calls.forEach(NamedCall::succeed);
            });
  }

  private static void failed(List<NamedCall> calls, Lane lane, Runnable over, Throwable reason) {
    over.run();
    if (reason instanceof InvalidUsage || !(reason instanceof FluxCclException)) {
      // The other ranks have enqueued theirs.
      lane.communicator.abort(FluxCclException.from(reason));
    }
    calls.forEach(call -> call.fail(reason));
  }

  private static Step step(List<NamedCall> calls, NamedBuckets buckets) {
    NamedCall first = calls.get(0);
    return calls.size() == 1 && first.wire == null
        ? new Step.Collect(first.call)
        : buckets.step(calls.stream().map(each -> each.call).toList(), first.wire);
  }

  /** Calls of one bucket, for messages. */
  private record Fused(List<NamedCall> calls) {
    private static final int LISTED = 4;

    @Override
    public String toString() {
      return "bucket of " + NamedOrder.list(calls, LISTED);
    }
  }

  private void succeed() {
    if (!isDetached) {
      signal(sink::success);
    }
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

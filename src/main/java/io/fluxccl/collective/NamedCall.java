// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.collective.NamedOrder.Announcement;
import java.util.List;
import reactor.core.publisher.Mono;
import reactor.core.publisher.MonoSink;

/** One subscription to a named operation. */
final class NamedCall {
  private final String name;
  private final CollectiveCall call;
  private final MonoSink<Void> sink;
  private final long limitNanos;
  private final long startNanos = System.nanoTime();
  private volatile boolean isDetached;

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

  long startNanos() {
    return startNanos;
  }

  long limitNanos() {
    return limitNanos;
  }

  Announcement announcement(long number) {
    long what = CallSignature.what(call);
    return new Announcement(name, number, what, CallSignature.count(call), limitNanos);
  }

  /** Enqueues the operation. */
  void run(Lane lane) {
    Mono<Void> run = lane.run(List.of(new Step.Collect(call)), this);
    // Not cancelled with the subscriber: the other ranks count on this rank's part.
    run.contextWrite(sink.contextView()).subscribe(done -> {}, this::fail, sink::success);
  }

  void fail(Throwable reason) {
    if (!isDetached) {
      sink.error(reason);
    }
  }

  @Override
  public String toString() {
    return call + " of name '" + name + "'";
  }
}

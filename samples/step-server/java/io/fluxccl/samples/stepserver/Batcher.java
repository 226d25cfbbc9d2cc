// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.stepserver;

import io.fluxccl.group.StepLoop;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.Queue;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Sinks;

/** The requests on rank 0, which share steps: each step continues all that are running. */
final class Batcher {
  static final int MAX_WAITING = 16;

  private final StepLoop loop;
  private final Mlp model;

  private volatile boolean failed;

  // The fields below are guarded by this.
  private final Queue<Request> waiting = new ArrayDeque<>();

  /** The rows of the step in flight; empty if there is none. */
  private final List<Request> running = new ArrayList<>();

  Batcher(StepLoop loop, Mlp model) {
    this.loop = loop;
    this.model = model;
  }

  private static final class Request {
    // Holds what the client has not read, so a slow client delays no other.
    final Sinks.Many<Byte> tokens = Sinks.many().unicast().onBackpressureBuffer();
    byte last;
    int left;
    volatile boolean cancelled;

    boolean isOver() {
      return left == 0 || cancelled;
    }
  }

  /** Returns the tokens that follow a prompt; nothing if too many requests wait. */
  synchronized Optional<Flux<Byte>> generate(byte prompt, int count) {
    waiting.removeIf(Request::isOver);
    if (waiting.size() == MAX_WAITING) {
      return Optional.empty();
    }
    Request request = new Request();
    request.last = prompt;
    request.left = count;
    waiting.add(request);
    if (running.isEmpty()) {
      step();
    }
    return Optional.of(request.tokens.asFlux().doOnCancel(() -> request.cancelled = true));
  }

  private void step() {
    running.removeIf(Request::isOver);
    while (running.size() < Mlp.MAX_BATCH && !waiting.isEmpty()) {
      running.add(waiting.remove());
    }
    if (!running.isEmpty()) {
      byte[] batch = new byte[running.size()];
      for (int i = 0; i < batch.length; i++) {
        batch[i] = running.get(i).last;
      }
      loop.step(batch).subscribe(null, this::fail, this::emit);
    }
  }

  private synchronized void emit() {
    for (int i = 0; i < running.size(); i++) {
      Request request = running.get(i);
      request.last = model.next(i);
      request.tokens.tryEmitNext(request.last);
      if (--request.left == 0) {
        request.tokens.tryEmitComplete();
      }
    }
    step();
  }

  /** Returns whether a step has failed; true before a client receives the error. */
  boolean hasFailed() {
    return failed;
  }

  /** Ends all requests with an error. A later one begins a step, which fails with the same one. */
  synchronized void fail(Throwable reason) {
    failed = true;
    running.addAll(waiting);
    waiting.clear();
    running.forEach(request -> request.tokens.tryEmitError(reason));
    running.clear();
  }
}

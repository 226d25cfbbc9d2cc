// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.training;

import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.ReduceOp;
import io.fluxccl.collective.NamedCollectives;
import io.fluxccl.concurrent.BlockingTasks;
import io.fluxccl.concurrent.UseCount;
import io.fluxccl.device.DeviceView;
import io.fluxccl.device.FloatView;
import io.fluxccl.device.IntView;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.Map;
import java.util.Set;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;
import reactor.core.publisher.Sinks;

/**
 * Averages gradients over the ranks while the backward pass computes others. A hook of the
 * framework reports each gradient that is complete, on any thread and in any order; the average
 * then replaces it in its memory.
 *
 * <pre>{@code
 * GradientReducer reducer = GradientReducer.of(named, gradients);
 * hook(name -> reducer.ready(name)); // begins at once, never blocks
 * loss.backward();
 * reducer.finish().block(); // all gradients are averages
 * optimizer.step();
 * }</pre>
 *
 * <p>If ranks may have different numbers of batches, each step begins with {@link #begin}, and a
 * rank without further batches calls {@link #join} instead of steps. Averages are then over the
 * ranks that had a batch.
 *
 * <p>A step is over when {@link #finish} was called and none of its averages runs, also if one has
 * failed. Until the result of {@code finish} signals that, the step uses the gradients: don't
 * change or close them. One step runs at a time; otherwise thread-safe. Create one in each
 * generation.
 */
public final class GradientReducer implements AutoCloseable {
  private static final String PARTICIPANTS = "fluxccl.training.participants";
  private static final int PIECE = 1 << 16;

  private final NamedCollectives named;
  private final Map<String, FloatView> gradients;
  private final int nRanks;

  /** Whether this rank has a batch; then the number of ranks that have one. */
  final IntView flag;

  /** Users of the flag: the sums that run, and this until it is closed. */
  private final UseCount flagUse;

  // Guarded by this.
  private Step step;

  /** Sums of the flag and averages of the current step. */
  private int running;

  /** One pass over all gradients. Guarded by the reducer. */
  private final class Step {
    private final Set<String> started = new HashSet<>();
    private final Sinks.Empty<Void> over = Sinks.empty();
    private Mono<Integer> participants = Mono.just(nRanks);
    private boolean hasBegun;
    private boolean isFinished;
    private FluxCclException failure;

    /** Keeps the first failure. */
    void fail(Throwable reason) {
      failure = failure == null ? FluxCclException.from(reason) : failure;
    }

    /** Returns why an operation can't begin now, or null. */
    InvalidUsage refusal(String operation) {
      String problem =
          flagUse.isClosed()
              ? "the reducer is closed; create another one"
              : isFinished ? "the previous step is not over; wait until finish has completed" : "";
      return problem.isEmpty() ? null : InvalidUsage.of("%s: %s", operation, problem);
    }
  }

  private GradientReducer(NamedCollectives named, Map<String, FloatView> gradients) {
    this.named = named;
    this.gradients = gradients;
    this.nRanks = named.of(PARTICIPANTS).topology().hostOf().size();
    this.flag = gradients.values().iterator().next().buffer().device().allocateInts(1);
    this.flagUse = new UseCount(flag::close);
    this.step = new Step();
  }

  /**
   * Creates this rank's part.
   *
   * @param named the calls, which stay the caller's; a name of a gradient is a name there
   * @param gradients by name, one or more; the same names and sizes on every rank. They stay the
   *     caller's, at the same address for all steps
   */
  public static GradientReducer of(
      NamedCollectives named, Map<String, ? extends FloatView> gradients) {
    InvalidUsage.requireNonNull(named, "GradientReducer", "named");
    if (InvalidUsage.requireNonNull(gradients, "GradientReducer", "gradients").isEmpty()) {
      throw new InvalidUsage("GradientReducer gradients={}; give one or more");
    }
    gradients.keySet().forEach(named::of); // refuses names that are too long
    if (gradients.containsKey(PARTICIPANTS)) {
      throw InvalidUsage.of(
          "GradientReducer gradient '%s': the reducer uses this name; give another", PARTICIPANTS);
    }
    return new GradientReducer(named, new LinkedHashMap<>(gradients));
  }

  /**
   * Begins a step of this rank with a batch, if ranks may have different numbers of batches. Call
   * it on every rank before each step, before the first gradient is ready and after {@link #finish}
   * of the step before has completed.
   *
   * @return the number of ranks that have a batch. Begins at this call; the result is not needed
   */
  public Mono<Integer> begin() {
    return begin(true);
  }

  private Mono<Integer> begin(boolean hasBatch) {
    Sinks.One<Integer> count = Sinks.one();
    Step begun;
    synchronized (this) {
      begun = step;
      InvalidUsage refusal = begun.refusal("begin");
      if (refusal == null && (begun.hasBegun || !begun.started.isEmpty())) {
        refusal =
            new InvalidUsage("begin: the step has begun before; call begin once, then finish");
      }
      if (refusal != null) {
        return Mono.error(refusal);
      }
      begun.hasBegun = true;
      begun.failure = null; // of a begin before
      begun.participants = count.asMono();
      flagUse.retain();
      running++;
    }
    Mono.fromRunnable(() -> flag.put(0, hasBatch ? 1 : 0))
        .then(allReduce(PARTICIPANTS, flag, ReduceOp.SUM))
        .publishOn(ParameterSync.BLOCKING)
        .then(Mono.fromCallable(() -> flag.get(0)))
        .doOnTerminate(flagUse::release)
        .subscribe(
            value -> {
              end(begun, null);
              count.tryEmitValue(value);
            },
            reason -> {
              synchronized (this) {
                begun.hasBegun = false;
              }
              end(begun, reason);
              count.tryEmitError(FluxCclException.from(reason));
            });
    return count.asMono();
  }

  /** Notes that a call of a step has ended. */
  private void end(Step ended, Throwable reason) {
    boolean isOver;
    synchronized (this) {
      if (reason != null) {
        ended.fail(reason);
      }
      running--;
      isOver = running == 0 && ended.isFinished;
      if (isOver) {
        step = new Step();
      }
    }
    if (isOver) {
      signal(ended.over, ended.failure);
    }
  }

  private static void signal(Sinks.Empty<Void> sink, Throwable reason) {
    if (reason == null) {
      sink.tryEmitEmpty();
    } else {
      sink.tryEmitError(FluxCclException.from(reason));
    }
  }

  /**
   * Reports that a gradient of this step is complete, and begins its average at once. Never blocks
   * or throws, so a hook may call it.
   *
   * @param name of the gradient; once in each step
   * @return completes when the average is in the gradient's memory. A failure also fails {@link
   *     #finish}, so the result is not needed
   */
  public Mono<Void> ready(String name) {
    Step current;
    InvalidUsage refusal;
    synchronized (this) {
      current = step;
      refusal = refusalOfReady(name);
      if (refusal == null) {
        running++;
      } else {
        current.fail(refusal);
      }
    }
    return refusal == null ? reduce(current, name) : Mono.error(refusal);
  }

  private InvalidUsage refusalOfReady(String name) {
    InvalidUsage refusal = step.refusal("ready('" + name + "')");
    if (refusal != null) {
      return refusal;
    }
    boolean isFirst = step.started.add(name);
    if (!gradients.containsKey(name)) {
      return InvalidUsage.of("ready('%s'): there is no gradient of this name", name);
    }
    return isFirst
        ? null
        : InvalidUsage.of(
            "ready('%s'): it was ready before in this step; call finish after each backward pass",
            name);
  }

  /** Begins the average of a gradient, which counts as running already. */
  private Mono<Void> reduce(Step current, String name) {
    Sinks.Empty<Void> done = Sinks.empty();
    FloatView gradient = gradients.get(name);
    allReduce(name, gradient, ReduceOp.AVG)
        .then(current.participants)
        .flatMap(count -> correct(gradient, count))
        .subscribe(
            null,
            reason -> {
              end(current, reason);
              signal(done, reason);
            },
            () -> {
              end(current, null);
              signal(done, null);
            });
    return done.asMono();
  }

  private Mono<Void> allReduce(String name, DeviceView view, ReduceOp op) {
    return Mono.fromCallable(BlockingTasks.typed(() -> named.allReduce(name, view, op)))
        .flatMap(run -> run);
  }

  /** Makes an average over all ranks, of which some gave zeros, one over those with a batch. */
  private Mono<Void> correct(FloatView gradient, int count) {
    return count == nRanks
        ? Mono.empty()
        : Mono.fromCallable(BlockingTasks.typed(() -> scale(gradient, (float) nRanks / count)))
            .subscribeOn(ParameterSync.BLOCKING);
  }

  /** Multiplies the elements of a view, on any device; makes them 0 if the factor is. */
  private static Void scale(FloatView view, float factor) {
    for (long from = 0; from < view.size(); from += PIECE) {
      FloatView piece = view.slice(from, Math.min(PIECE, view.size() - from));
      float[] values = piece.toArray();
      for (int i = 0; i < values.length; i++) {
        values[i] = factor == 0 ? 0 : factor * values[i];
      }
      piece.put(values);
    }
    return null;
  }

  /**
   * Ends the step: call it after the backward pass. Also averages the gradients that were not
   * reported, as they are in memory; clear them before a backward pass that may leave some out.
   * After {@link #close} it begins no averages, but still waits for those that run, and then fails.
   *
   * @return signals when the step is over: completes if all gradients are averages, otherwise fails
   *     with the first failure. Begins at this call
   */
  public Mono<Void> finish() {
    Step last;
    Set<String> left = new LinkedHashSet<>();
    synchronized (this) {
      last = step;
      InvalidUsage refusal = last.refusal("finish");
      if (last.isFinished) {
        return Mono.error(refusal);
      }
      last.isFinished = true;
      if (refusal == null) {
        left.addAll(gradients.keySet());
        left.removeAll(last.started);
      } else {
        last.fail(refusal);
      }
      running += left.size() + 1;
    }
    left.forEach(name -> reduce(last, name));
    end(last, null);
    return last.over.asMono();
  }

  /**
   * Takes part, with gradients of zero, in the steps that other ranks still begin. A rank without
   * further batches subscribes to it instead of {@link #begin}.
   *
   * @return for each step the number of ranks that had a batch, when the averages are in this
   *     rank's gradients: apply them before the next is requested, so that parameters stay equal.
   *     Completes when no rank has a batch. Cold; signals arrive on threads that may block
   */
  public Flux<Integer> join() {
    return Flux.<Integer>generate(
            sink -> {
              int count = joinStep().block();
              if (count == 0) {
                sink.complete();
              } else {
                sink.next(count);
              }
            })
        .subscribeOn(ParameterSync.BLOCKING);
  }

  private Mono<Integer> joinStep() {
    return begin(false)
        .flatMap(
            count -> {
              if (count == 0) {
                synchronized (this) {
                  step = new Step();
                }
                return Mono.just(0);
              }
              gradients.forEach(this::clear);
              return finish().thenReturn(count);
            });
  }

  /** Clears a gradient. If that fails, so does the step, which averages only the others. */
  private void clear(String name, FloatView gradient) {
    try {
      scale(gradient, 0);
    } catch (RuntimeException | Error e) {
      synchronized (this) {
        step.started.add(name);
        step.fail(e);
      }
    }
  }

  /**
   * Begins no further averages. Averages that run continue, and still use their gradients: {@link
   * #finish} returns when none does. Frees the counter of ranks, once its sum does not run. The
   * calls and the gradients stay the caller's. Does not wait. Idempotent.
   */
  @Override
  public synchronized void close() {
    if (flagUse.beginClose()) {
      flagUse.release();
    }
  }
}

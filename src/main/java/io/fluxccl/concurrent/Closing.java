// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.concurrent;

import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import java.util.Arrays;
import java.util.Collection;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Supplier;
import org.agrona.CloseHelper;
import org.agrona.LangUtil;
import reactor.core.scheduler.Schedulers;

/**
 * Closes several objects, each of them even if closing another one throws an exception or an error,
 * and releases what a failed step leaves.
 */
public final class Closing {
  private Closing() {}

  /**
   * Closes the parts in that order, and then throws the first failure. Later failures are
   * suppressed exceptions of the first.
   *
   * @param parts the objects to close; nulls are ignored
   */
  public static void all(AutoCloseable... parts) {
    all(Arrays.asList(parts));
  }

  /**
   * As {@link #all(AutoCloseable...)}.
   *
   * @param parts the objects to close; nulls are ignored
   */
  public static void all(Collection<? extends AutoCloseable> parts) {
    Throwable first = null;
    for (AutoCloseable part : parts) {
      try {
        if (part != null) {
          part.close();
        }
      } catch (Throwable e) {
        first = first == null ? e : first;
        if (e != first) {
          first.addSuppressed(e);
        }
      }
    }
    if (first != null) {
      LangUtil.rethrowUnchecked(first);
    }
  }

  /**
   * Returns the result of a step. If the step fails, undoes what was done before it.
   *
   * @param undo releases the resources that the step was to take over; its failure is suppressed
   * @param step throws its failure, which this method throws after {@code undo}
   * @param <T> the type of the result
   * @return the result of the step
   */
  public static <T> T onFailure(AutoCloseable undo, Supplier<T> step) {
    try {
      return step.get();
    } catch (RuntimeException | Error e) {
      CloseHelper.close(e::addSuppressed, undo);
      throw e;
    }
  }

  /** {@link #onFailure(AutoCloseable, Supplier)} of a step without a result. */
  public static void onFailure(AutoCloseable undo, Runnable step) {
    onFailure(
        undo,
        () -> {
          step.run();
          return null;
        });
  }

  /** Completes a future of a close that has ended; {@code failure} is null if all is closed. */
  public static void complete(CompletableFuture<Void> closed, Throwable failure) {
    if (failure == null) {
      closed.complete(null);
    } else {
      closed.completeExceptionally(FluxCclException.from(failure));
    }
  }

  /**
   * Refuses a close that would wait on a thread that runs completions, before anything is closed:
   * the close itself may need that thread.
   *
   * @param what the owner, for the message
   * @throws InvalidUsage on a thread on which Reactor's {@code block()} is refused, too
   */
  public static void requireBlockingThread(String what) {
    if (Schedulers.isInNonBlockingThread()) {
      throw InvalidUsage.of(
          "%s: close() waits, and must not on thread %s, which runs completions; call closeAsync()",
          what, Thread.currentThread().getName());
    }
  }

  /**
   * Waits for the end of an asynchronous close. An interrupt of the caller ends the wait and is
   * kept.
   *
   * @param closed completes when all is closed
   * @param seconds the longest wait
   * @param late called if the time expires
   * @throws FluxCclException if something could not be closed
   */
  public static void await(CompletableFuture<?> closed, long seconds, Runnable late) {
    try {
      closed.get(seconds, TimeUnit.SECONDS);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    } catch (TimeoutException e) {
      late.run();
    } catch (ExecutionException e) {
      throw FluxCclException.from(e);
    }
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.testing;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.stream.LongStream;

/** Runs tasks of a test in threads of their own. */
public final class Parallel {
  /** A task that is one of several. */
  public interface Task<T> {
    /** Runs the task of this number. */
    T run(long number) throws Exception;
  }

  private Parallel() {}

  /** Runs a task for each number, at most some at once; returns the results in this order. */
  public static <T> List<T> forEach(LongStream numbers, int atOnce, Task<T> task) throws Exception {
    ExecutorService threads = Executors.newFixedThreadPool(atOnce);
    try {
      List<Callable<T>> tasks =
          numbers.<Callable<T>>mapToObj(number -> () -> task.run(number)).toList();
      List<T> results = new ArrayList<>();
      for (Future<T> each : threads.invokeAll(tasks)) {
        results.add(each.get());
      }
      return results;
    } finally {
      threads.shutdownNow();
    }
  }
}

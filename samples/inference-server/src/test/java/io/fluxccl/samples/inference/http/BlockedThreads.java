// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.http;

import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.stream.Collectors;
import reactor.blockhound.BlockHound;
import reactor.blockhound.integration.BlockHoundIntegration;

/** Records the calls that block on threads that must not. BlockHound finds this class by itself. */
public final class BlockedThreads implements BlockHoundIntegration {
  private static final int MOST_FRAMES = 40;

  static final List<String> CALLS = new CopyOnWriteArrayList<>();

  @Override
  public void applyTo(BlockHound.Builder builder) {
    // The end of a pool takes its lock and those of its threads, which are held only briefly.
    for (String ends : List.of("shutdown", "shutdownNow")) {
      builder.allowBlockingCallsInside("java.util.concurrent.ThreadPoolExecutor", ends);
    }
    builder.allowBlockingCallsInside("java.util.concurrent.ThreadPoolExecutor$Worker", "lock");
    builder.blockingMethodCallback(
        method -> {
          CALLS.add(
              "%s on %s:%n\t%s"
                  .formatted(method, Thread.currentThread().getName(), frames(new Throwable())));
          throw new IllegalStateException("Blocked: " + method);
        });
  }

  private static String frames(Throwable here) {
    return Arrays.stream(here.getStackTrace())
        .limit(MOST_FRAMES)
        .map(StackTraceElement::toString)
        .collect(Collectors.joining("\n\t"));
  }
}

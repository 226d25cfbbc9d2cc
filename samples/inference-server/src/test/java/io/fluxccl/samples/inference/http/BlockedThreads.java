// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.http;

import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import reactor.blockhound.BlockHound;
import reactor.blockhound.integration.BlockHoundIntegration;

/** Remembers which threads that must not block did. BlockHound finds this class by itself. */
public final class BlockedThreads implements BlockHoundIntegration {
  static final List<String> CALLS = new CopyOnWriteArrayList<>();

  @Override
  public void applyTo(BlockHound.Builder builder) {
    // A thread of a pool that ends takes the pool's lock, and holds up nobody.
    builder.allowBlockingCallsInside(
        "java.util.concurrent.ThreadPoolExecutor", "processWorkerExit");
    builder.blockingMethodCallback(
        method -> {
          CALLS.add(method + " on " + Thread.currentThread().getName());
          throw new IllegalStateException("Blocked: " + method);
        });
  }
}

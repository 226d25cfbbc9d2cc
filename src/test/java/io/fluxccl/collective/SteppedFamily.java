// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.host.HostKernel;
import io.fluxccl.testing.FakeFamily;
import io.fluxccl.testkit.LocalRanks;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * Collectives that move no data and need no peer. The family counts enqueued calls, and the test
 * decides when they complete.
 */
final class SteppedFamily extends FakeFamily implements CollectiveAlgorithm {
  final AtomicInteger enqueued = new AtomicInteger();

  /** Called under the lane's lock by the thread that has just enqueued a kernel. */
  volatile Runnable whenEnqueued = () -> {};

  private final Semaphore steps = new Semaphore(0);
  private final HostKernel kernel =
      HostKernel.of(
          "stepped",
          (thread, args) -> {
            if (!steps.tryAcquire(60, TimeUnit.SECONDS)) {
              throw new IllegalStateException("no step in time");
            }
          });

  SteppedFamily() {
    super("stepped");
  }

  /** Opens collectives on all ranks and returns those of rank 0; the others call nothing. */
  Collectives open(LocalRanks ranks, CollectivesOptions options) {
    CollectivesOptions stepped = options.withFamily(this);
    List<CompletableFuture<Collectives>> all =
        ranks.ranks().stream()
            .map(rank -> Collectives.create(rank.communicator(), stepped))
            .toList();
    all.forEach(CompletableFuture::join);
    return all.get(0).join();
  }

  /** Permits more calls to complete. */
  void step(int times) {
    steps.release(times);
  }

  @Override
  public List<CollectiveAlgorithm> algorithms() {
    return List.of(this);
  }

  @Override
  public boolean supports(BoundCall call) {
    return true;
  }

  @Override
  public double estimate(BoundCall call) {
    return 0;
  }

  @Override
  public void enqueue(DeviceStream stream, BoundCall call) {
    stream.launch(kernel, 1, 1, KernelArgs.NONE);
    enqueued.incrementAndGet();
    whenEnqueued.run();
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static io.fluxccl.ReduceOp.SUM;

import io.fluxccl.DataType;
import io.fluxccl.concurrent.BlockingTasks;
import io.fluxccl.concurrent.IdleBackoff;
import io.fluxccl.concurrent.Timers;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.LocalRanks;
import java.time.Duration;
import java.util.List;
import java.util.Random;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.awaitility.Awaitility;
import reactor.blockhound.BlockHound;
import reactor.blockhound.BlockingOperationError;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;
import reactor.core.scheduler.Scheduler;
import reactor.core.scheduler.Schedulers;

/**
 * Sets collectives up and runs all of them, every step on a thread on which nothing may block,
 * while BlockHound watches. Started by {@link NonBlockingTest}, because BlockHound changes the
 * whole JVM.
 */
final class NonBlockingRun {
  private static final Duration LONG = Duration.ofSeconds(120);
  private static final int COUNT = 5000;
  private static final int HAND_OVERS = 50;

  private NonBlockingRun() {}

  public static void main(String[] args) {
    BlockHound.install();
    Scheduler strict = Schedulers.newSingle("strict", true);
    System.out.println("watching: " + on(strict, NonBlockingRun::refusesToSleep));
    handOver(BlockingTasks.EXECUTOR);
    ExecutorService users = Executors.newScheduledThreadPool(4 * HAND_OVERS);
    handOver(users);
    users.shutdown();
    System.out.println("idled: " + on(strict, NonBlockingRun::idles));
    try (LocalRanks ranks = LocalRanks.of(2)) {
      Mono<Void> all =
          Flux.fromIterable(ranks.ranks())
              .flatMap(rank -> run(rank, strict).subscribeOn(strict))
              .then();
      all.block(LONG);
    }
    awaitEndOfTimers();
    System.out.println("nothing blocked");
  }

  /** Waits until the timer thread ends, which blocks while it has tasks. */
  private static void awaitEndOfTimers() {
    CompletableFuture<Thread> timers = new CompletableFuture<>();
    Timers.current().schedule(() -> timers.complete(Thread.currentThread()));
    Awaitility.await().atMost(LONG).until(() -> !timers.join().isAlive());
  }

  private static boolean on(Scheduler strict, Callable<Boolean> body) {
    return Boolean.TRUE.equals(Mono.fromCallable(body).subscribeOn(strict).block(LONG));
  }

  private static boolean refusesToSleep() throws InterruptedException {
    try {
      Thread.sleep(1);
      return false;
    } catch (BlockingOperationError e) {
      return true;
    }
  }

  /** Returns whether a thread may spin and yield as the library's agents do while they idle. */
  private static boolean idles() {
    IdleBackoff backoff = new IdleBackoff(50, 500, 10, 1000);
    while (backoff.nextNapNanos(System.nanoTime()) == 0) {
      continue; // it has spun or yielded
    }
    return true;
  }

  /** Submits tasks from many threads at once; each task needs a new thread. */
  private static void handOver(Executor executor) {
    CompletableFuture<Void> end = new CompletableFuture<>();
    Flux.range(0, 4)
        .flatMap(
            thread ->
                Flux.range(0, HAND_OVERS)
                    .doOnNext(number -> executor.execute(end::join))
                    .subscribeOn(Schedulers.newSingle("strict-" + thread, true)))
        .then()
        .doFinally(signal -> end.complete(null))
        .block(LONG);
  }

  private static Mono<Void> run(LocalRank rank, Scheduler strict) {
    DeviceBuffer memory = rank.device().allocate(RandomCollectiveCase.memory(2, 4 * COUNT));
    DeviceBuffer x = rank.device().allocate(COUNT * 4L);
    DeviceBuffer y = rank.device().allocate(COUNT * 8L);
    return Mono.defer(() -> Mono.fromFuture(Collectives.create(rank.communicator())))
        .publishOn(strict)
        .flatMap(
            collectives ->
                registered(collectives, List.of(memory, x, y))
                    .publishOn(strict)
                    .then(Mono.defer(() -> every(collectives, rank, memory, x, y)))
                    .then(Mono.defer(() -> refusesToSleepInAContinuation(collectives)))
                    .publishOn(strict)
                    .doOnSuccess(done -> collectives.close()));
  }

  private static Mono<Void> registered(Collectives collectives, List<DeviceBuffer> buffers) {
    CompletableFuture<?>[] all =
        buffers.stream().map(collectives::register).toArray(CompletableFuture<?>[]::new);
    return Mono.fromFuture(CompletableFuture.allOf(all));
  }

  /** By default continuations run on the library's own thread, which BlockHound watches, too. */
  private static Mono<Void> refusesToSleepInAContinuation(Collectives collectives) {
    return collectives
        .barrier()
        .then(
            Mono.<Void>fromRunnable(
                () -> {
                  try {
                    Thread.sleep(1);
                    throw new IllegalStateException("slept on " + Thread.currentThread());
                  } catch (BlockingOperationError e) {
                    System.out.println("refused to sleep on " + Thread.currentThread().getName());
                  } catch (InterruptedException e) {
                    throw new IllegalStateException(e);
                  }
                }));
  }

  private static Mono<Void> every(
      Collectives collectives,
      LocalRank rank,
      DeviceBuffer memory,
      DeviceBuffer x,
      DeviceBuffer y) {
    DataType type = DataType.FLOAT32;
    Random random = new Random(1);
    return Flux.concat(
            collectives.allReduce(x.slice(0, 64), type, SUM),
            Flux.fromIterable(Collective.plain())
                .map(which -> new RandomCollectiveCase(random, 2, which, 4 * COUNT))
                .concatMap(each -> collectives.run(each.on(rank.rank(), memory).call)),
            collectives
                .pipeline()
                .allReduce(x, type, SUM)
                .copy(y, 0, x, 0, x.size())
                .allReduce(y, type, SUM)
                .run())
        .then();
  }
}

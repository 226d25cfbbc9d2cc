// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.benchmarks;

import com.sun.management.ThreadMXBean;
import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.bootstrap.LocalBootstrap;
import io.fluxccl.collective.Collectives;
import io.fluxccl.collective.CollectivesOptions;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.communicator.CommunicatorOptions;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.host.HostDevice;
import io.fluxccl.trace.FlightRecorder;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.CompletableFuture;
import reactor.core.publisher.Mono;

/**
 * Measures time and allocated bytes of an all-reduce on rank 0, between two ranks of this JVM. Each
 * call is awaited separately. Runs with and without a flight recorder alternate.
 *
 * <pre>
 *   java ... RecorderCost BYTES ROUNDS CALLS
 * </pre>
 */
public final class RecorderCost {
  private static final int RANKS = 2;

  private final List<Mono<Void>> calls = new ArrayList<>();
  private final double[] nanos;
  private long allocated;

  private RecorderCost(int recordedCalls, long bytes, int rounds) {
    nanos = new double[rounds];
    List<LocalBootstrap> bootstraps = LocalBootstrap.group(RANKS);
    List<CompletableFuture<Collectives>> opening = new ArrayList<>();
    List<DeviceBuffer> buffers = new ArrayList<>();
    for (LocalBootstrap bootstrap : bootstraps) {
      HostDevice device = HostDevice.create();
      Communicator communicator =
          Communicator.create(
              bootstrap, device, CommunicatorOptions.DEFAULT.withRecordedCalls(recordedCalls));
      buffers.add(device.allocate(bytes));
      opening.add(Collectives.create(communicator, CollectivesOptions.DEFAULT.withThreads(1)));
    }
    for (int rank = 0; rank < RANKS; rank++) {
      Collectives collectives = opening.get(rank).join();
      calls.add(collectives.allReduce(buffers.get(rank), DataType.FLOAT32, ReduceOp.SUM));
    }
  }

  /** Makes calls on both ranks, and measures those of rank 0. */
  private void run(int round, int count) throws InterruptedException {
    ThreadMXBean threads = (ThreadMXBean) ManagementFactory.getThreadMXBean();
    Thread other =
        new Thread(
            () -> {
              for (int i = 0; i < count; i++) {
                calls.get(1).block();
              }
            });
    other.start();
    long bytes = threads.getCurrentThreadAllocatedBytes();
    long began = System.nanoTime();
    for (int i = 0; i < count; i++) {
      calls.get(0).block();
    }
    nanos[round] = (System.nanoTime() - began) / (double) count;
    allocated = (threads.getCurrentThreadAllocatedBytes() - bytes) / count;
    other.join();
  }

  private void print(String name) {
    Arrays.sort(nanos);
    System.out.printf(
        Locale.ROOT,
        "%s: best %.2f, first quarter %.2f, median %.2f us; %d B/op%n",
        name,
        nanos[0] / 1000,
        nanos[nanos.length / 4] / 1000,
        nanos[nanos.length / 2] / 1000,
        allocated);
  }

  /** See the class. */
  public static void main(String[] args) throws InterruptedException {
    long bytes = Long.parseLong(args[0]);
    int rounds = Integer.parseInt(args[1]);
    int count = Integer.parseInt(args[2]);
    RecorderCost off = new RecorderCost(0, bytes, rounds);
    RecorderCost on = new RecorderCost(FlightRecorder.DEFAULT_CALLS, bytes, rounds);
    for (int warmUp = 0; warmUp < 5; warmUp++) {
      off.run(0, count);
      on.run(0, count);
    }
    for (int round = 0; round < rounds; round++) {
      (round % 2 == 0 ? off : on).run(round, count);
      (round % 2 == 0 ? on : off).run(round, count);
    }
    off.print("without");
    on.print("with");
    System.exit(0);
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.benchmarks;

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
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import reactor.core.publisher.Mono;

/**
 * Measures time and allocated bytes of an all-reduce on rank 0, between two ranks of this JVM. Each
 * call is awaited separately. Runs with and without a flight recorder alternate.
 *
 * <p>Arguments: bytes (16384), rounds (60), calls a round (4000).
 */
final class RecorderCost {
  private static final int RANKS = 2;

  private final List<Mono<Void>> calls = new ArrayList<>();
  private double allocated;

  private RecorderCost(int recordedCalls, long bytes) {
    List<CompletableFuture<Collectives>> opening = new ArrayList<>();
    List<DeviceBuffer> buffers = new ArrayList<>();
    for (LocalBootstrap bootstrap : LocalBootstrap.group(RANKS)) {
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

  static final Bench BENCH =
      Bench.onHost(
          "recorder",
          "an all-reduce between two ranks of one JVM, without and with the flight recorder",
          (rows, arguments) -> {
            List<String> given = arguments.isEmpty() ? List.of("16384", "60", "4000") : arguments;
            long bytes = Long.parseLong(given.get(0));
            int count = Integer.parseInt(given.get(2));
            RecorderCost off = new RecorderCost(0, bytes);
            RecorderCost on = new RecorderCost(FlightRecorder.DEFAULT_CALLS, bytes);
            Samples.inTurns(5, () -> off.run(count), () -> on.run(count));
            int rounds = Integer.parseInt(given.get(1));
            double[][] micros = Samples.inTurns(rounds, () -> off.run(count), () -> on.run(count));
            for (double share : new double[] {0, 0.25, 0.5}) {
              rows.compare(
                  "a call with the recorder, percentile " + Math.round(100 * share),
                  Samples.percentile(micros[1], share),
                  Samples.percentile(micros[0], share),
                  "us",
                  "without",
                  "");
            }
            rows.compare(
                "bytes of a call with it", on.allocated, off.allocated, "bytes", "without", "");
          });

  /** Makes calls on both ranks; returns the microseconds of one of rank 0. */
  private double run(int count) throws Exception {
    Thread other = new Thread(() -> repeat(1, count));
    other.start();
    Samples.Cost cost = Samples.cost(count, () -> repeat(0, count));
    other.join();
    allocated = cost.bytes();
    return cost.micros();
  }

  private void repeat(int rank, int count) {
    for (int i = 0; i < count; i++) {
      calls.get(rank).block();
    }
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.benchmarks;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.Text;
import io.fluxccl.bootstrap.LocalBootstrap;
import io.fluxccl.collective.Collectives;
import io.fluxccl.collective.CollectivesOptions;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.concurrent.Closing;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.host.HostDevice;
import io.fluxccl.device.host.HostMemory;
import io.fluxccl.transport.Transport;
import java.io.File;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/**
 * The cost of many ranks in one JVM, step by step: time, shared memory, descriptors, threads.
 *
 * <p>Arguments: transport, ranks, bytes of all-reduces.
 */
final class ManyRanks {
  private static final int ROUNDS = 3;
  private static final long LIMIT_SECONDS = 300;

  private final int nRanks;
  private final Bench.Rows rows;
  private final List<HostDevice> devices = new ArrayList<>();
  private final List<Communicator> communicators = new ArrayList<>();
  private final List<Collectives> lanes = new ArrayList<>();

  private ManyRanks(int nRanks, Bench.Rows rows) {
    this.nRanks = nRanks;
    this.rows = rows;
  }

  static final Bench BENCH =
      Bench.onHost(
          "many-ranks",
          "many ranks in one JVM, step by step: time, shared memory, descriptors, threads",
          ManyRanks::run);

  private static void run(Bench.Rows rows, List<String> arguments) throws Exception {
    List<String> given = arguments.isEmpty() ? List.of("SHM", "64", "4096") : arguments;
    ManyRanks ranks = new ManyRanks(Integer.parseInt(given.get(1)), rows);
    long begin = System.nanoTime();
    for (LocalBootstrap bootstrap : LocalBootstrap.group(ranks.nRanks)) {
      HostDevice device = HostDevice.create();
      ranks.devices.add(device);
      ranks.communicators.add(Communicator.create(bootstrap, device));
    }
    ranks.report("communicators", begin);
    ranks.openLanes(Transport.valueOf(given.get(0)));
    ranks.report("lanes", begin);
    for (String bytes : given.subList(2, given.size())) {
      ranks.reduce(Long.parseLong(bytes));
    }
    begin = System.nanoTime();
    Closing.all(ranks.lanes);
    Closing.all(ranks.communicators);
    Closing.all(ranks.devices);
    ranks.report("closed", begin);
  }

  private void openLanes(Transport transport) throws Exception {
    CollectivesOptions options =
        CollectivesOptions.DEFAULT
            .withTransport(transport)
            .withTimeout(Duration.ofSeconds(LIMIT_SECONDS));
    lanes.addAll(
        all(communicators.stream().map(each -> Collectives.create(each, options)).toList()));
  }

  private static <T> List<T> all(List<CompletableFuture<T>> futures) throws Exception {
    CompletableFuture<?>[] all = futures.toArray(CompletableFuture<?>[]::new);
    CompletableFuture.allOf(all).get(LIMIT_SECONDS, TimeUnit.SECONDS);
    return futures.stream().map(CompletableFuture::join).toList();
  }

  private void reduce(long bytes) throws Exception {
    List<DeviceBuffer> buffers = new ArrayList<>();
    devices.forEach(device -> buffers.add(device.allocate(bytes)));
    for (int round = 0; round < ROUNDS; round++) {
      buffers.forEach(buffer -> HostMemory.putInt(buffer.address() + bytes - 4, 1));
      long begin = System.nanoTime();
      List<CompletableFuture<Void>> calls = new ArrayList<>();
      for (int rank = 0; rank < nRanks; rank++) {
        calls.add(
            lanes.get(rank).allReduce(buffers.get(rank), DataType.INT32, ReduceOp.SUM).toFuture());
      }
      all(calls);
      report("all-reduce of " + bytes, begin);
      for (DeviceBuffer buffer : buffers) {
        if (HostMemory.getInt(buffer.address() + bytes - 4) != nRanks) {
          throw new IllegalStateException("wrong result");
        }
      }
    }
    Closing.all(buffers);
  }

  private void report(String step, long begin) {
    long millis = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - begin);
    File shared = new File("/dev/shm");
    rows.add(
        nRanks + " ranks, " + step,
        millis,
        "ms",
        "",
        Text.of(
            "shared memory %d MB, %.1f descriptors a rank, %d threads",
            (shared.getTotalSpace() - shared.getFreeSpace()) / 1_000_000,
            new File("/proc/self/fd").list().length / (double) nRanks,
            Thread.getAllStackTraces().size()));
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.benchmarks;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.bootstrap.Bootstrap;
import io.fluxccl.bootstrap.BootstrapOptions;
import io.fluxccl.bootstrap.LocalBootstrap;
import io.fluxccl.bootstrap.TcpBootstrap;
import io.fluxccl.bootstrap.UniqueId;
import io.fluxccl.collective.Collectives;
import io.fluxccl.collective.CollectivesOptions;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.concurrent.Closing;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.host.HostDevice;
import io.fluxccl.device.host.HostMemory;
import io.fluxccl.transport.Transport;
import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/**
 * The cost of many ranks in one JVM, step by step: time, shared memory, descriptors, threads.
 *
 * <pre>ManyRanks local|tcp TRANSPORT RANKS [bytes of an all-reduce]...</pre>
 *
 * <p>{@code local} ranks exchange set-up messages through memory, {@code tcp} ranks through
 * sockets.
 */
public final class ManyRanks {
  private static final int ROUNDS = 3;
  private static final long LIMIT_SECONDS = 300;

  private final int nRanks;
  private final List<HostDevice> devices = new ArrayList<>();
  private final List<Communicator> communicators = new ArrayList<>();
  private final List<Collectives> lanes = new ArrayList<>();

  private ManyRanks(int nRanks) {
    this.nRanks = nRanks;
  }

  public static void main(String[] args) throws Exception {
    ManyRanks ranks = new ManyRanks(Integer.parseInt(args[2]));
    long begin = System.nanoTime();
    ranks.report("start", begin);
    ranks.open(args[0].equals("tcp") ? ranks.tcp() : LocalBootstrap.group(ranks.nRanks));
    ranks.report("communicators", begin);
    ranks.openLanes(Transport.valueOf(args[1]));
    ranks.report("lanes", begin);
    for (int i = 3; i < args.length; i++) {
      ranks.reduce(Long.parseLong(args[i]));
    }
    begin = System.nanoTime();
    Closing.all(ranks.lanes);
    Closing.all(ranks.communicators);
    Closing.all(ranks.devices);
    ranks.report("closed", begin);
    System.exit(0);
  }

  private List<TcpBootstrap> tcp() throws Exception {
    BootstrapOptions options =
        BootstrapOptions.builder().timeout(Duration.ofSeconds(LIMIT_SECONDS)).build();
    UniqueId id = TcpBootstrap.createUniqueId(options);
    List<TcpBootstrap> bootstraps = new ArrayList<>();
    List<CompletableFuture<Void>> joining = new ArrayList<>();
    for (int rank = 0; rank < nRanks; rank++) {
      bootstraps.add(TcpBootstrap.create(rank, nRanks, options));
      joining.add(bootstraps.get(rank).initialize(id));
    }
    all(joining);
    return bootstraps;
  }

  private void open(List<? extends Bootstrap> bootstraps) {
    for (Bootstrap bootstrap : bootstraps) {
      HostDevice device = HostDevice.create();
      devices.add(device);
      communicators.add(Communicator.create(bootstrap, device));
    }
  }

  private void openLanes(Transport transport) throws Exception {
    CollectivesOptions options =
        CollectivesOptions.DEFAULT
            .withTransport(transport)
            .withTimeout(Duration.ofSeconds(LIMIT_SECONDS));
    for (Collectives lane :
        all(
            communicators.stream()
                .map(communicator -> Collectives.create(communicator, options))
                .toList())) {
      lanes.add(lane);
    }
  }

  private static <T> List<T> all(List<CompletableFuture<T>> futures) throws Exception {
    List<T> results = new ArrayList<>();
    for (CompletableFuture<T> future : futures) {
      results.add(future.get(LIMIT_SECONDS, TimeUnit.SECONDS));
    }
    return results;
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

  private void report(String step, long begin) throws IOException {
    long millis = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - begin);
    File shared = new File("/dev/shm");
    System.out.printf(
        Locale.ROOT,
        "%-24s %6d ms, shared memory %5d MB, %6.1f descriptors a rank, %5d threads, most resident"
            + " %5d MB%n",
        step,
        millis,
        (shared.getTotalSpace() - shared.getFreeSpace()) / 1_000_000,
        new File("/proc/self/fd").list().length / (double) nRanks,
        Thread.getAllStackTraces().size(),
        mostResident());
  }

  private static long mostResident() throws IOException {
    for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
      if (line.startsWith("VmHWM")) {
        return Long.parseLong(line.replaceAll("\\D", "")) / 1000;
      }
    }
    return 0;
  }
}

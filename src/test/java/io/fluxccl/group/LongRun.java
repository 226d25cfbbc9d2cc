// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.group;

import io.fluxccl.DataType;
import io.fluxccl.FluxCclException;
import io.fluxccl.ReduceOp;
import io.fluxccl.bootstrap.JobSecret;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.Collectives;
import io.fluxccl.collective.CollectivesOptions;
import io.fluxccl.collective.Pipeline;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.IntView;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.transport.Transport;
import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.locks.LockSupport;
import java.util.function.IntFunction;
import org.awaitility.Awaitility;
import reactor.core.publisher.Mono;

/**
 * A rank that runs all-reduces until its group fails, then prints the failure and its time, on a
 * clock that all processes of the machine share. Started by {@link RankDeathTest}.
 *
 * <ul>
 *   <li>"hosts": runs all kinds of collectives inside hosts and between them instead.
 *   <li>"shrink": continues with the live ranks after a failure, and prints when that works.
 *   <li>"dies:RANK:MILLIS": that rank ends its process {@code MILLIS} after the job has formed,
 *       while lanes open. The others print the error that ended their set-up or group.
 *   <li>"serve": runs one job per line of its input. The line names the rank, the job, the
 *       transport and a timeout in milliseconds (default 30 s). Prints the resources left after
 *       each job.
 * </ul>
 */
public final class LongRun {
  /** The argument of a process that is a rank of several consecutive jobs. */
  public static final String SERVE = "serve";

  static final String DIES = "dies:";
  private static final long PATIENCE_SECONDS = 10;

  private LongRun() {}

  public static void main(String[] args) throws IOException {
    if (args[0].equals(SERVE)) {
      serve();
      return;
    }
    join(args[0].split(":"));
  }

  private static void serve() throws IOException {
    // The JDK keeps a socket of its own from the first one on that is closed, and so does CUDA.
    SocketChannel.open().close();
    if ("cuda".equals(System.getenv("FLUXCCL_DEVICE"))) {
      CudaDevice.open(0).close();
    }
    Set<String> before = Set.copyOf(open());
    BufferedReader in =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      String[] words = line.split(" ");
      JoinOptions options =
          JoinOptions.of(Integer.parseInt(words[0]), Integer.parseInt(words[1]))
              .withAddress(words[2])
              .withSecret(new JobSecret(words[3]));
      int millis = words.length > 5 ? Integer.parseInt(words[5]) : 30_000;
      run(RankGroup.join(options), Duration.ofMillis(millis), words[4]);
      System.out.println("closed, left: " + left(before));
    }
  }

  /** Returns the sockets and segments that this process has open, and the library's threads. */
  private static List<String> open() {
    List<String> open = new ArrayList<>();
    for (File each : new File("/proc/self/fd").listFiles()) {
      try {
        open.add(Files.readSymbolicLink(each.toPath()).toString());
      } catch (IOException e) {
        continue; // it was closed meanwhile
      }
    }
    open.removeIf(file -> !file.startsWith("socket:") && !file.contains("fluxccl-"));
    Thread.getAllStackTraces().keySet().stream()
        .map(Thread::getName)
        // These threads end some time after their last task.
        .filter(name -> name.matches("fluxccl-(?!blocking-|timers).*"))
        .forEach(open::add);
    return open;
  }

  /** Returns what is open and was not before, once that stays so. */
  private static List<String> left(Set<String> before) {
    List<String> left;
    long end = System.nanoTime() + Duration.ofSeconds(PATIENCE_SECONDS).toNanos();
    do {
      left = open();
      left.removeAll(before);
      LockSupport.parkNanos(1_000_000);
    } while (!left.isEmpty() && System.nanoTime() < end);
    return left;
  }

  private static void run(CompletableFuture<RankGroup> joining, Duration timeout, String kind) {
    List<DeviceBuffer> buffers = new ArrayList<>();
    try (RankGroup group = joining.join()) {
      IntFunction<DeviceBuffer> allocate =
          bytes -> {
            buffers.add(group.device().allocate(bytes));
            return buffers.get(buffers.size() - 1);
          };
      Runnable round =
          kind.equals("hosts")
              ? byHosts(group, allocate)
              : allReduce(group, timeout, kind, allocate);
      round.run(); // then all ranks have connected
      System.out.println("running");
      try {
        while (true) {
          round.run();
        }
      } catch (RuntimeException e) {
        say(FluxCclException.from(e));
        if (kind.equals("shrink")) {
          shrink(group);
        }
      }
    }
    buffers.forEach(DeviceBuffer::close);
  }

  private static void say(FluxCclException failure) {
    System.out.println(
        "failed " + failure.code() + " rank=" + failure.rank() + " at=" + System.nanoTime());
    System.out.println(failure.getMessage());
  }

  private static void join(String[] dies) {
    CompletableFuture<RankGroup> joined = RankGroup.fromEnvironment();
    if (dies[1].equals(System.getenv("FLUXCCL_RANK"))) {
      Awaitility.await()
          .pollDelay(Duration.ZERO)
          .pollInterval(Duration.ofMillis(1))
          .until(LongRun::hasMet);
      LockSupport.parkNanos(Duration.ofMillis(Long.parseLong(dies[2])).toNanos());
      Runtime.getRuntime().halt(1);
    }
    try (RankGroup group = joined.join()) {
      say(group.communicator().failed().join());
    } catch (CompletionException e) {
      say(FluxCclException.from(e));
    }
    System.out.println("closed");
  }

  /** The device and the lanes are opened on threads of their own once the ranks have met. */
  private static boolean hasMet() {
    return Thread.getAllStackTraces().values().stream()
        .flatMap(Arrays::stream)
        .anyMatch(
            frame ->
                frame.getClassName().endsWith("RankGroup")
                    && (frame.getMethodName().equals("<init>")
                        || frame.getMethodName().equals("createCollectives")));
  }

  private static void shrink(RankGroup group) {
    try (RankGroup smaller = group.shrink().join();
        IntView view = smaller.device().allocateInts(4)) {
      view.put(3, 1);
      smaller.collectives().allReduce(view.buffer(), DataType.INT32, ReduceOp.SUM).block();
      System.out.println(
          "shrunk sum=" + view.get(3) + " rank=" + smaller.rank() + " at=" + System.nanoTime());
    }
  }

  private static Runnable allReduce(
      RankGroup group, Duration timeout, String transport, IntFunction<DeviceBuffer> allocate) {
    CollectivesOptions options =
        CollectivesOptions.DEFAULT
            .withTimeout(timeout)
            .withSetupTimeout(Duration.ofSeconds(60))
            .withTag(1);
    if (!transport.equals("auto") && !transport.equals("shrink")) {
      options = options.withTransport(Transport.valueOf(transport));
    }
    DeviceBuffer large = allocate.apply(1 << 18);
    DeviceBuffer small = allocate.apply(400);
    Collectives collectives = Collectives.create(group.communicator(), options).join();
    Pipeline both =
        collectives
            .pipeline()
            .allReduce(large, DataType.INT32, ReduceOp.SUM)
            .allReduce(small, DataType.INT32, ReduceOp.SUM);
    return () -> both.run().block();
  }

  private static Runnable byHosts(RankGroup group, IntFunction<DeviceBuffer> allocate) {
    Collectives all = group.collectives();
    for (Collective kind :
        List.of(
            Collective.ALL_REDUCE,
            Collective.ALL_GATHER,
            Collective.REDUCE_SCATTER,
            Collective.ALL_TO_ALL,
            Collective.BROADCAST,
            Collective.REDUCE)) {
      all.prefer(kind, Optional.of("hierarchical"));
    }
    int part = 1 << 15;
    int whole = part * group.nRanks();
    DataType type = DataType.INT32;
    DeviceBuffer x = allocate.apply(whole * 4);
    DeviceBuffer y = allocate.apply(whole * 4);
    all.register(x).join();
    all.register(y).join();
    return () ->
        Mono.when(
                all.allReduce(x, y, whole, type, ReduceOp.SUM),
                all.allGather(x, y, part, type),
                all.reduceScatter(x, y, part, type, ReduceOp.SUM),
                all.allToAll(x, y, part, type),
                all.broadcast(x, whole, type, 1),
                all.reduce(x, y, whole, type, ReduceOp.SUM, 2))
            .block();
  }
}

package io.fluxccl.group;

import io.fluxccl.DataType;
import io.fluxccl.FluxCclException;
import io.fluxccl.ReduceOp;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.Collectives;
import io.fluxccl.collective.CollectivesOptions;
import io.fluxccl.collective.Pipeline;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.IntView;
import io.fluxccl.transport.Transport;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.locks.LockSupport;
import org.awaitility.Awaitility;
import reactor.core.publisher.Mono;

/**
 * A rank that all-reduces until something fails, or with "hosts" does all that can be done inside
 * hosts and between them, then says what and when, on the clock that all processes of a machine
 * share. With "shrink" it goes on with the ranks that live, and says when that works. With
 * "dies:RANK:MILLIS" that rank ends its process so long after the ranks have met, while the lanes
 * open; the others say what ended their set-up or group. Started by {@link RankDeathTest}.
 */
final class LongRun {
  static final String DIES = "dies:";

  private LongRun() {}

  public static void main(String[] args) {
    if (args[1].startsWith(DIES)) {
      join(args[1].split(":"));
      return;
    }
    Duration timeout = Duration.ofMillis(Long.parseLong(args[0]));
    try (RankGroup group = RankGroup.fromEnvironment().join()) {
      Runnable round =
          args[1].equals("hosts") ? byHosts(group) : allReduce(group, timeout, args[1]);
      System.out.println("running");
      try {
        while (true) {
          round.run();
        }
      } catch (RuntimeException e) {
        say(FluxCclException.from(e));
        if (args[1].equals("shrink")) {
          shrink(group);
        }
      }
    }
    System.out.println("closed");
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

  private static Runnable allReduce(RankGroup group, Duration timeout, String transport) {
    CollectivesOptions options =
        CollectivesOptions.DEFAULT
            .withTimeout(timeout)
            .withSetupTimeout(Duration.ofSeconds(60))
            .withTag(1);
    if (!transport.equals("auto") && !transport.equals("shrink")) {
      options = options.withTransport(Transport.valueOf(transport));
    }
    DeviceBuffer large = group.device().allocate(1 << 18);
    DeviceBuffer small = group.device().allocate(400);
    Collectives collectives = Collectives.create(group.communicator(), options).join();
    Pipeline both =
        collectives
            .pipeline()
            .allReduce(large, DataType.INT32, ReduceOp.SUM)
            .allReduce(small, DataType.INT32, ReduceOp.SUM);
    return () -> both.run().block();
  }

  private static Runnable byHosts(RankGroup group) {
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
    DeviceBuffer x = group.device().allocate(whole * 4L);
    DeviceBuffer y = group.device().allocate(whole * 4L);
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

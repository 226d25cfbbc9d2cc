// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.benchmarks;

import io.fluxccl.DataType;
import io.fluxccl.Deadline;
import io.fluxccl.ReduceOp;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.CollectiveCall;
import io.fluxccl.collective.Collectives;
import io.fluxccl.collective.CollectivesOptions;
import io.fluxccl.collective.Pipeline;
import io.fluxccl.collective.Registration;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.host.HostKernel;
import io.fluxccl.group.RankGroup;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;

/**
 * Measures the time of the host device's collectives as {@code openmpi_collectives.c} measures
 * MPI's: in batches of consecutive calls, each batch after a barrier. The time of a batch is that
 * of the slowest rank. The best batch counts, because other processes of the machine can only add
 * time.
 *
 * <pre>
 *   fluxccl launch -n 2 java ... HostCollectives COLLECTIVE,... MINBYTES MAXBYTES FACTOR MILLISECONDS
 *       [in] [registered] [algorithm=NAME]
 * </pre>
 *
 * One line a size: collective, bytes of the larger of input and output, microseconds a call.
 */
public final class HostCollectives {
  private static final double BATCH_NANOS = 500_000;
  private static final int MAX_BATCHES = 2000;
  private static final Duration LONG = Duration.ofSeconds(120);

  private final RankGroup group;
  private final Collectives collectives;
  private final Collective what;
  private final boolean inPlace;
  private final DeviceBuffer in;
  private final DeviceBuffer out;
  private final long[] stamps = new long[2];

  private HostCollectives(
      RankGroup group,
      Collectives collectives,
      Collective what,
      boolean inPlace,
      DeviceBuffer in,
      DeviceBuffer out) {
    this.group = group;
    this.collectives = collectives;
    this.what = what;
    this.inPlace = inPlace;
    this.in = in;
    this.out = out;
  }

  private CollectiveCall call(long bytes) {
    int n = group.nRanks();
    int me = group.rank();
    long all = bytes / Float.BYTES;
    long part = all / n;
    DataType type = DataType.FLOAT32;
    DeviceBuffer mine = in.slice(inPlace ? me * part * Float.BYTES : 0, part * Float.BYTES);
    return switch (what) {
      case ALL_REDUCE -> CollectiveCall.allReduce(inPlace ? out : in, out, all, type, ReduceOp.SUM);
      case ALL_GATHER -> CollectiveCall.allGather(mine, inPlace ? in : out, part, type);
      case REDUCE_SCATTER ->
          CollectiveCall.reduceScatter(in, inPlace ? mine : out, part, type, ReduceOp.SUM);
      case BROADCAST -> CollectiveCall.broadcast(in, in, all, type, 0);
      case REDUCE -> CollectiveCall.reduce(in, inPlace ? in : out, all, type, ReduceOp.SUM, 0);
      case ALL_TO_ALL -> CollectiveCall.allToAll(in, inPlace ? in : out, part, type);
      case GATHER -> CollectiveCall.gather(mine, inPlace ? in : out, part, type, 0);
      case SCATTER -> CollectiveCall.scatter(in, inPlace ? mine : out, part, type, 0);
      case SEND_RECEIVE ->
          CollectiveCall.sendReceive(in, all, (me + 1) % n, out, all, (me + n - 1) % n, type);
      default -> CollectiveCall.barrier();
    };
  }

  private Pipeline batch(CollectiveCall call, int calls) {
    HostKernel stamp =
        HostKernel.of("stamp", (thread, args) -> stamps[args.getInt(0)] = System.nanoTime());
    Pipeline pipeline =
        collectives.pipeline().then(CollectiveCall.barrier()).launch(stamp, 1, 1, KernelArgs.of(0));
    for (int i = 0; i < calls; i++) {
      pipeline = pipeline.then(call);
    }
    return pipeline.launch(stamp, 1, 1, KernelArgs.of(1));
  }

  /** Nanoseconds a call. */
  private double measure(CollectiveCall call, int batches, int calls) {
    Pipeline pipeline = batch(call, calls);
    ByteBuffer times = ByteBuffer.allocate(batches * Long.BYTES);
    for (int i = 0; i < batches; i++) {
      pipeline.run().block(LONG);
      times.putLong(stamps[1] - stamps[0]);
    }
    List<byte[]> all = group.bootstrap().allGather(times.array(), Deadline.after(LONG)).join();
    long best = Long.MAX_VALUE;
    for (int i = 0; i < batches; i++) {
      long slowest = 0;
      for (byte[] one : all) {
        slowest = Math.max(slowest, ByteBuffer.wrap(one).getLong(i * Long.BYTES));
      }
      best = Math.min(best, slowest);
    }
    return (double) best / calls;
  }

  private void run(long min, long max, int factor, long millis) {
    for (long bytes = min; bytes <= max; bytes *= factor) {
      CollectiveCall call = call(bytes);
      double once = 0;
      for (int i = 0; i < 3; i++) {
        once = measure(call, 20, 10);
      }
      int calls = (int) Math.max(2, BATCH_NANOS / once);
      int batches = (int) Math.min(MAX_BATCHES, Math.max(10, millis * 1e6 / (calls * once)));
      double best = measure(call, batches, calls);
      if (group.rank() == 0) {
        System.out.printf(
            Locale.ROOT,
            "%s %d %.3f %s%n",
            what.label(),
            bytes,
            best / 1000,
            collectives.algorithmFor(call));
      }
    }
  }

  /** See the class. */
  public static void main(String[] args) {
    try (RankGroup group = RankGroup.fromEnvironment().join()) {
      run(group, args);
    }
  }

  static void run(RankGroup group, String[] args) {
    List<String> flags = List.of(args).subList(5, args.length);
    CollectivesOptions options = CollectivesOptions.DEFAULT.withTag(7).withThreads(1);
    for (String flag : flags) {
      if (flag.startsWith("algorithm=")) {
        for (Collective what : Collective.values()) {
          options = options.withAlgorithm(what, flag.substring("algorithm=".length()));
        }
      }
    }
    long max = Long.parseLong(args[2]);
    try (Collectives collectives = Collectives.create(group.communicator(), options).join();
        DeviceBuffer in = group.device().allocate(max);
        DeviceBuffer out = group.device().allocate(max)) {
      List<Registration> registrations = new ArrayList<>();
      if (flags.contains("registered")) {
        registrations.add(collectives.register(in).join());
        registrations.add(collectives.register(out).join());
      }
      for (String name : args[0].split(",")) {
        Collective what = Collective.valueOf(name.replace('-', '_').toUpperCase(Locale.ROOT));
        new HostCollectives(group, collectives, what, flags.contains("in"), in, out)
            .run(Long.parseLong(args[1]), max, Integer.parseInt(args[3]), Long.parseLong(args[4]));
      }
      registrations.forEach(Registration::close);
    }
  }
}

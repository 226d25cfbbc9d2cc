// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.benchmarks;

import io.fluxccl.DataType;
import io.fluxccl.Deadline;
import io.fluxccl.ReduceOp;
import io.fluxccl.Text;
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
import java.util.Optional;

/** Collectives of the host device between processes: floats, sums. */
final class HostCollectives {
  private static final double BATCH_NANOS = 500_000;
  private static final int MAX_BATCHES = 2000;
  private static final int WARM_UP_CALLS = 20;
  private static final long WARM_UP_BYTES = 512L << 20;
  private static final Duration LONG = Duration.ofSeconds(120);

  /**
   * Measures as {@code openmpi_collectives.c} measures MPI's: in batches of consecutive calls, each
   * batch after a barrier. The time of a batch is that of the slowest rank. The best batch counts,
   * because other processes of the machine can only add time. Sizes are those of the larger of
   * input and output.
   *
   * <p>Arguments: collectives with commas, least bytes, most bytes, factor, milliseconds a size;
   * then {@code in} (place) and {@code registered}, or neither.
   */
  static final Bench BENCH =
      Bench.onHost(
              "host-collectives",
              "collectives between processes as openmpi_collectives.c measures MPI's",
              HostCollectives::best)
          .inRanks(2);

  /**
   * Measures algorithms in turn in the same processes, out of place, on registered buffers.
   *
   * <p>Arguments: collectives, algorithms, sizes in KiB (each list with commas), rounds,
   * milliseconds a round. The first algorithm is the peer of the others.
   */
  static final Bench IN_TURN =
      Bench.onHost(
              "in-turn",
              "algorithms for the same collective in turn, in the same processes",
              HostCollectives::inTurn)
          .inRanks(2);

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
      String what,
      boolean inPlace,
      DeviceBuffer in,
      DeviceBuffer out) {
    this.group = group;
    this.collectives = collectives;
    this.what = Collective.valueOf(what.replace('-', '_').toUpperCase(Locale.ROOT));
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

  // ---- the best batch ----

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

  /** Returns the blocks of all ranks. */
  private List<ByteBuffer> gather(ByteBuffer mine) {
    return group.bootstrap().allGather(mine.array(), Deadline.after(LONG)).join().stream()
        .map(ByteBuffer::wrap)
        .toList();
  }

  /** Returns the nanoseconds of a call. */
  private double measure(CollectiveCall call, int batches, int calls) {
    Pipeline pipeline = batch(call, calls);
    ByteBuffer times = ByteBuffer.allocate(batches * Long.BYTES);
    for (int i = 0; i < batches; i++) {
      pipeline.run().block(LONG);
      times.putLong(stamps[1] - stamps[0]);
    }
    List<ByteBuffer> all = gather(times);
    long best = Long.MAX_VALUE;
    for (int i = 0; i < batches; i++) {
      int at = i * Long.BYTES;
      best = Math.min(best, all.stream().mapToLong(one -> one.getLong(at)).max().orElse(0));
    }
    return (double) best / calls;
  }

  private double best(CollectiveCall call, long millis) {
    double once = 0;
    for (int i = 0; i < 3; i++) {
      once = measure(call, 20, 10);
    }
    int calls = (int) Math.max(2, BATCH_NANOS / once);
    int batches = (int) Math.min(MAX_BATCHES, Math.max(10, millis * 1e6 / (calls * once)));
    return measure(call, batches, calls) / 1000;
  }

  private static void best(Bench.Rows rows, List<String> given) {
    List<String> flags = given.subList(5, given.size());
    CollectivesOptions options = CollectivesOptions.DEFAULT.withTag(7).withThreads(1);
    long max = Long.parseLong(given.get(2));
    try (RankGroup group = RankGroup.fromEnvironment().join();
        Collectives collectives = Collectives.create(group.communicator(), options).join();
        DeviceBuffer in = group.device().allocate(max);
        DeviceBuffer out = group.device().allocate(max)) {
      List<Registration> registrations = new ArrayList<>();
      if (flags.contains("registered")) {
        registrations.add(collectives.register(in).join());
        registrations.add(collectives.register(out).join());
      }
      for (String name : given.get(0).split(",")) {
        HostCollectives one =
            new HostCollectives(group, collectives, name, flags.contains("in"), in, out);
        for (long bytes = Long.parseLong(given.get(1));
            bytes <= max;
            bytes *= Integer.parseInt(given.get(3))) {
          CollectiveCall call = one.call(bytes);
          double micros = one.best(call, Long.parseLong(given.get(4)));
          rows.add(name + " " + bytes, micros, "us", "", collectives.algorithmFor(call));
        }
      }
      registrations.forEach(Registration::close);
    }
  }

  // ---- algorithms in turn ----

  private static void inTurn(Bench.Rows rows, List<String> given) throws Exception {
    try (RankGroup group = RankGroup.fromEnvironment().join()) {
      for (String name : given.get(0).split(",")) {
        for (String kib : given.get(2).split(",")) {
          long bytes = Long.parseLong(kib) << 10;
          Collectives collectives = group.collectives();
          try (DeviceBuffer in = group.device().allocate(bytes);
              DeviceBuffer out = group.device().allocate(bytes);
              AutoCloseable input = collectives.register(in).join();
              AutoCloseable output = collectives.register(out).join()) {
            new HostCollectives(group, collectives, name, false, in, out)
                .inTurn(rows, bytes, given.get(1).split(","), given.subList(3, 5));
          }
        }
      }
    }
  }

  private void inTurn(Bench.Rows rows, long bytes, String[] algorithms, List<String> rounds)
      throws Exception {
    CollectiveCall call = call(bytes);
    Samples.Measured[] turns = new Samples.Measured[algorithms.length];
    for (int i = 0; i < algorithms.length; i++) {
      String algorithm = algorithms[i];
      double once = time(algorithm, call, Math.max(WARM_UP_CALLS, WARM_UP_BYTES / bytes));
      long mine = Math.max(2, (long) (Double.parseDouble(rounds.get(1)) * 1000 / once));
      // All ranks make as many calls as rank 0 wants.
      long calls = gather(ByteBuffer.allocate(Long.BYTES).putLong(0, mine)).get(0).getLong(0);
      turns[i] = () -> time(algorithm, call, calls);
    }
    double[][] micros = Samples.inTurns(Integer.parseInt(rounds.get(0)), turns);
    double first = Samples.median(micros[0]);
    for (int i = 1; i < algorithms.length; i++) {
      String title = Text.of("%s %d KiB, %s", what.label(), bytes >> 10, algorithms[i]);
      rows.compare(title, Samples.median(micros[i]), first, "us", algorithms[0], "");
    }
  }

  /** Returns the microseconds of a call. */
  private double time(String algorithm, CollectiveCall call, long calls) throws Exception {
    collectives.prefer(what, Optional.of(algorithm));
    collectives.barrier().block();
    return Samples.cost(
            calls,
            () -> {
              for (long i = 0; i < calls; i++) {
                collectives.run(call).block();
              }
              collectives.barrier().block();
            })
        .micros();
  }
}

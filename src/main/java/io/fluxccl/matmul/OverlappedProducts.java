// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.matmul;

import io.fluxccl.Deadline;
import io.fluxccl.DeviceFailure;
import io.fluxccl.Experimental;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.RemoteFailure;
import io.fluxccl.Text;
import io.fluxccl.collective.AddRmsNorm;
import io.fluxccl.collective.CapturedPipeline;
import io.fluxccl.collective.Collectives;
import io.fluxccl.collective.Epilogue;
import io.fluxccl.collective.Pipeline;
import io.fluxccl.collective.RankTopology;
import io.fluxccl.concurrent.BlockingTasks;
import io.fluxccl.concurrent.Lifecycle;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.matmul.OverlapTable.Operation;
import io.fluxccl.matmul.OverlapTable.Rule;
import io.fluxccl.matmul.OverlapTable.Way;
import io.fluxccl.wire.WireReader;
import io.fluxccl.wire.WireWriter;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Supplier;
import java.util.stream.IntStream;
import org.agrona.CloseHelper;

/**
 * The products of a tensor-parallel layer with their communication as one step: a product before a
 * reduce-scatter or an all-reduce, and an all-gather before a product. All matrices lie row by row
 * without gaps. {@code in} has {@link ProductShape#inputs} columns, {@code weights} has {@link
 * ProductShape#outputs} rows of as many, and the product is {@code in * weights^T}.
 *
 * <p>Each operation returns a {@link Pipeline} of its steps. {@code run()} enqueues it, {@code
 * capture()} records it, and {@link Pipeline#then(Pipeline)} adds it to another one:
 *
 * <pre>{@code
 * OverlappedProducts down =
 *     OverlappedProducts.of(collectives, new ProductShape(7168, 8192, BFLOAT16, 8192)).join();
 * Mono<Void> layer = down.matmulReduceScatter(8192, activations, weights, rowsOfThisRank).run();
 * }</pre>
 *
 * <p>On GPUs of one host, large products are computed in pieces, one for one or two ranks. While
 * cuBLASLt multiplies a piece, copy engines move another one, so the product keeps all
 * multiprocessors. An {@link OverlapTable} says from which number of rows on; with fewer, and on
 * other devices, the product and the collective run one after the other, which is then faster.
 *
 * <p>Within a host, sums over the ranks are added as 32-bit floats in rank order and rounded once,
 * so results are reproducible and do not depend on the way. Products with numbers of rows between
 * the same powers of two, excluding the lower, use one kernel of cuBLASLt. Pieces may be multiplied
 * by another one than the whole matrix: elements of a product may then differ in the last place.
 *
 * <p>All operations run in the order of the {@link Collectives}, with their completion, time limit,
 * cancellation and errors. Every rank calls the same operations with the same number of rows; calls
 * that differ fail on every rank, as collectives that differ do. Memory for one operation is
 * allocated once and shared by all of this object.
 */
@Experimental
public final class OverlappedProducts implements AutoCloseable {
  private static final int MAGIC = 0x4658504f; // FXPO
  private static final int VERSION = 1;
  private static final int MOST_TEXT = 256;

  /** Tags of exchanges on lane 0, from which those on other lanes count up; no lane has them. */
  private static final int OPEN_TAG = 1 << 22;

  private static final int TUNE_TAG = 1 << 23;

  private static final int TURNS = 7;
  private static final int RUNS_OF_TURN = 20;

  /** The part of the serial time below which pieces are faster without doubt. */
  private static final double LEAST_GAIN = 0.98;

  private final Collectives collectives;
  private final ProductShape shape;
  private final OverlapTable table;
  private final RankTopology topology;
  private final Lifecycle lifecycle = new Lifecycle("overlapped products");
  private final OverlapSteps steps;

  private OverlappedProducts(Collectives collectives, ProductShape shape, OverlapTable table) {
    this.collectives = collectives;
    this.shape = shape;
    this.table = table;
    this.topology = collectives.topology();
    try {
      this.steps = new OverlapSteps(collectives, shape, lifecycle);
    } catch (RuntimeException | Error e) {
      lifecycle.close();
      throw e;
    }
  }

  /** {@link #of(Collectives, ProductShape, OverlapTable)} with the default table. */
  public static CompletableFuture<OverlappedProducts> of(
      Collectives collectives, ProductShape shape) {
    return of(collectives, shape, OverlapTable.DEFAULT);
  }

  /**
   * {@link #of(Collectives, ProductShape, OverlapTable)} with the table of a file. A rank that
   * can't read its file ends with {@link InvalidUsage}, and the others with {@link RemoteFailure}.
   *
   * @param table the file, with the same rules on every rank
   */
  public static CompletableFuture<OverlappedProducts> of(
      Collectives collectives, ProductShape shape, Path table) {
    InvalidUsage.requireNonNull(table, "overlapped products", "table");
    return open(collectives, shape, () -> OverlapTable.read(table));
  }

  /**
   * Prepares products of a shape: allocates memory for the rows that ranks exchange, and registers
   * it. Every rank calls it, in the same order among its set-ups and its operations on this lane.
   *
   * @param collectives on which all operations run; stay the caller's
   * @param shape the same on every rank
   * @param table the same on every rank
   * @return the products, which the caller closes before the collectives. Fails with {@link
   *     InvalidUsage} on every rank if shapes or tables differ. If one rank can't prepare, it fails
   *     with its reason, such as a {@link DeviceFailure} because cuBLASLt is missing, and the
   *     others with a {@link RemoteFailure} that names that rank. If it was cancelled, the products
   *     are closed as soon as they are prepared. Callbacks may block
   */
  public static CompletableFuture<OverlappedProducts> of(
      Collectives collectives, ProductShape shape, OverlapTable table) {
    InvalidUsage.requireNonNull(table, "overlapped products", "table");
    return open(collectives, shape, () -> table);
  }

  private static CompletableFuture<OverlappedProducts> open(
      Collectives collectives, ProductShape shape, Supplier<OverlapTable> table) {
    InvalidUsage.requireNonNull(collectives, "overlapped products", "collectives");
    InvalidUsage.requireNonNull(shape, "overlapped products", "shape");
    AtomicReference<OverlappedProducts> made = new AtomicReference<>();
    Supplier<byte[]> part =
        () -> {
          made.set(new OverlappedProducts(collectives, shape, table.get()));
          return made.get().description();
        };
    AtomicBoolean overlaps = new AtomicBoolean();
    CompletableFuture<OverlappedProducts> result = new CompletableFuture<>();
    collectives
        .register(
            () ->
                together(collectives, OPEN_TAG, "overlapped products", part)
                    .thenApply(
                        all -> {
                          overlaps.set(made.get().requireSameShapes(all));
                          return made.get().steps.memory();
                        }))
        .thenApplyAsync(
            registered -> {
              made.get().steps.bind(registered, overlaps.get());
              return made.get();
            },
            BlockingTasks.EXECUTOR)
        .whenCompleteAsync(
            (done, failure) -> {
              if (failure != null) {
                CloseHelper.close(failure::addSuppressed, made.get());
                result.completeExceptionally(failure);
              } else if (!result.complete(done)) {
                done.close(); // the caller has cancelled the result, or given it a time limit
              }
            },
            BlockingTasks.EXECUTOR);
    return result;
  }

  /**
   * Does one part of a step on every rank.
   *
   * @param tag of the exchange on lane 0
   * @param part returns bytes for all ranks; may block
   * @return the bytes by rank. If a rank can't do its part, all ranks end with its reason
   */
  private static CompletableFuture<List<byte[]>> together(
      Collectives collectives, int tag, String what, Supplier<byte[]> part) {
    return CompletableFuture.supplyAsync(() -> done(part), BlockingTasks.EXECUTOR)
        .thenCompose(
            result ->
                collectives
                    .communicator()
                    .exchange(
                        tag + collectives.options().tag(),
                        what,
                        result,
                        Deadline.after(collectives.options().timeout())))
        .handleAsync(
            (all, failure) -> {
              if (failure != null) {
                FluxCclException reason = FluxCclException.from(failure);
                int rank = collectives.topology().rank();
                throw reason.withMessage(
                    Text.of("%s on rank %d: %s", what, rank, reason.getMessage()));
              }
              return all;
            },
            BlockingTasks.EXECUTOR);
  }

  /** Does a part before the time limit of its exchange begins. */
  private static Supplier<byte[]> done(Supplier<byte[]> part) {
    try {
      byte[] result = part.get();
      return () -> result;
    } catch (RuntimeException | Error e) {
      return () -> {
        throw e;
      };
    }
  }

  private byte[] description() {
    String text =
        Text.of(
            "inputs=%d, outputs=%d, type=%s, maxRows=%d and table #%x",
            shape.inputs(),
            shape.outputs(),
            shape.type(),
            shape.maxRows(),
            table.toText().hashCode());
    return new WireWriter().header(MAGIC, VERSION).bool(steps.canOverlap()).string(text).toBytes();
  }

  /** Returns whether all ranks can overlap; refuses another rank's shape or table. */
  private boolean requireSameShapes(List<byte[]> all) {
    boolean overlaps = true;
    String first = null;
    for (int rank = 0; rank < all.size(); rank++) {
      WireReader in =
          WireReader.ofPeer(all.get(rank), "description of overlapped products", rank)
              .header(MAGIC, VERSION);
      overlaps &= in.bool("overlaps");
      String text = in.string("shape", MOST_TEXT);
      in.end();
      first = rank == 0 ? text : first;
      if (!text.equals(first)) {
        throw InvalidUsage.of(
            "overlapped products on rank %d: rank 0 has %s, rank %d has %s; give every rank the"
                + " same shape and table",
            topology.rank(), first, rank, text);
      }
    }
    return overlaps;
  }

  /**
   * Measures all operations in both ways. Every rank calls it, in the same order among its
   * operations, and gets the same rules. Other work on the GPUs would distort them. Gives no rules
   * for numbers that have one way only, such as those that are no multiples of the number of ranks.
   *
   * @param rows the numbers of rows to measure, strictly ascending
   * @return the table of this object with rules for its shape. If one rank has no memory for a
   *     measurement, it fails with its reason, and the others with a {@link RemoteFailure}.
   *     Callbacks may block
   * @throws InvalidUsage if a number is out of range, or not more than the one before
   */
  public CompletableFuture<OverlapTable> tune(int... rows) {
    InvalidUsage.requireNonNull(rows, "tune", "rows");
    for (int i = 0; i < rows.length; i++) {
      steps.requireRows("tune", rows[i]);
      if (i > 0 && rows[i] <= rows[i - 1]) {
        throw InvalidUsage.of(
            "tune on rank %d: rows=%d after rows=%d; give strictly ascending numbers",
            topology.rank(), rows[i], rows[i - 1]);
      }
    }
    int[] both = IntStream.of(rows).filter(steps::canOverlap).toArray();
    return collectives
        .communicator()
        .inTurn(
            TUNE_TAG + collectives.options().tag(),
            () -> CompletableFuture.supplyAsync(() -> measured(both), BlockingTasks.EXECUTOR))
        .whenCompleteAsync((table, failure) -> {}, BlockingTasks.EXECUTOR);
  }

  private OverlapTable measured(int[] rows) {
    List<Rule> rules = new ArrayList<>();
    int n = topology.nRanks();
    for (Operation operation : Operation.values()) {
      for (int i = 0; i < rows.length; i++) {
        Way way = faster(operation, rows[i]);
        int upTo = i == rows.length - 1 ? shape.maxRows() : rows[i];
        rules.add(new Rule(operation, n, shape.inputs(), shape.outputs(), upTo, way));
      }
    }
    return table.with(rules);
  }

  /** Returns the way that is faster on the slowest rank by more than measurements vary. */
  private Way faster(Operation operation, int rows) {
    try (Trial trial = new Trial(operation, rows)) {
      together(collectives, TUNE_TAG, "tune", trial::prepare).join();
      long[] slowest = new long[Way.values().length];
      List<byte[]> times = together(collectives, TUNE_TAG, "tune", trial::measure).join();
      for (int rank = 0; rank < times.size(); rank++) {
        WireReader in = WireReader.ofPeer(times.get(rank), "times of overlapped products", rank);
        for (int way = 0; way < slowest.length; way++) {
          slowest[way] = Math.max(slowest[way], in.int64("time", 0, Long.MAX_VALUE));
        }
      }
      boolean isFaster = slowest[Way.PIECES.ordinal()] < LEAST_GAIN * slowest[Way.SERIAL.ordinal()];
      return isFaster ? Way.PIECES : Way.SERIAL;
    }
  }

  /** The measurement of an operation in both ways, on this rank. */
  private final class Trial implements AutoCloseable {
    private final Operation operation;
    private final int rows;
    private final Lifecycle owned = new Lifecycle("tune");
    private final List<CapturedPipeline> ways = new ArrayList<>();

    Trial(Operation operation, int rows) {
      this.operation = operation;
      this.rows = rows;
    }

    /** Allocates memory and captures the pipelines; no peer waits for that. */
    byte[] prepare() {
      Device device = collectives.communicator().device();
      DeviceBuffer in = owned.own(device.allocate(shape.inBytes(rows)));
      DeviceBuffer weights = owned.own(device.allocate(shape.weightBytes()));
      DeviceBuffer out = owned.own(device.allocate(shape.outBytes(rows)));
      OverlapSteps.Call call = steps.call(operation, rows, in, weights, out);
      for (Way way : Way.values()) {
        ways.add(owned.own(call.steps(way).capture()));
      }
      return new byte[0];
    }

    /** Returns the least time of each way. */
    byte[] measure() {
      long[] best = new long[ways.size()];
      Arrays.fill(best, Long.MAX_VALUE);
      for (int turn = 0; turn < TURNS; turn++) {
        for (int way = 0; way < best.length; way++) {
          long begin = System.nanoTime();
          ways.get(way).run(RUNS_OF_TURN).toFuture().join();
          best[way] = Math.min(best[way], System.nanoTime() - begin);
        }
      }
      WireWriter times = new WireWriter();
      for (long nanos : best) {
        times.int64(nanos);
      }
      return times.toBytes();
    }

    @Override
    public void close() {
      owned.close();
    }
  }

  /** Returns the shape. */
  public ProductShape shape() {
    return shape;
  }

  /**
   * Returns the way in which an operation is executed.
   *
   * @param rows of the whole matrix
   */
  public Way way(Operation operation, int rows) {
    return steps.canOverlap(rows)
        ? table.way(operation, topology.nRanks(), shape, rows)
        : Way.SERIAL;
  }

  /**
   * Multiplies, adds up the ranks' products and gives each rank its share of the rows.
   *
   * @param rows of {@code in}, a multiple of the number of ranks
   * @param in {@code rows * inputs} elements
   * @param weights {@code outputs * inputs} elements
   * @param out receives {@code rows / nRanks * outputs} elements; no part of the others
   * @return the steps
   * @throws InvalidUsage if the rows can't be divided or are too many, or a buffer is closed, too
   *     small, of another device, or on a GPU not aligned to 16 bytes
   */
  public Pipeline matmulReduceScatter(
      int rows, DeviceBuffer in, DeviceBuffer weights, DeviceBuffer out) {
    OverlapSteps.Call call = steps.call(Operation.MATMUL_REDUCE_SCATTER, rows, in, weights, out);
    call.requireShares();
    call.require(shape.inBytes(rows), shape.outBytes(rows / topology.nRanks()));
    return call.steps(way(call.operation, rows));
  }

  /**
   * Gathers all ranks' rows and multiplies them.
   *
   * @param rows of the gathered matrix, a multiple of the number of ranks
   * @param in this rank's {@code rows / nRanks * inputs} elements
   * @param weights {@code outputs * inputs} elements
   * @param out receives {@code rows * outputs} elements; no part of the others
   * @return the steps
   * @throws InvalidUsage as {@link #matmulReduceScatter}
   */
  public Pipeline allGatherMatmul(
      int rows, DeviceBuffer in, DeviceBuffer weights, DeviceBuffer out) {
    OverlapSteps.Call call = steps.call(Operation.ALL_GATHER_MATMUL, rows, in, weights, out);
    call.requireShares();
    call.require(shape.inBytes(rows / topology.nRanks()), shape.outBytes(rows));
    return call.steps(way(call.operation, rows));
  }

  /**
   * Multiplies and adds up the ranks' products.
   *
   * @param rows 1 or more
   * @param in {@code rows * inputs} elements
   * @param weights {@code outputs * inputs} elements
   * @param out receives {@code rows * outputs} elements; no part of the others
   * @return the steps
   * @throws InvalidUsage as {@link #matmulReduceScatter}
   */
  public Pipeline matmulAllReduce(
      int rows, DeviceBuffer in, DeviceBuffer weights, DeviceBuffer out) {
    OverlapSteps.Call call = steps.call(Operation.MATMUL_ALL_REDUCE, rows, in, weights, out);
    call.require(shape.inBytes(rows), shape.outBytes(rows));
    return call.steps(way(call.operation, rows));
  }

  /**
   * Multiplies, adds up the ranks' products and applies an epilogue to each row, such as {@link
   * AddRmsNorm}.
   *
   * @param rows 1 or more
   * @param in {@code rows * inputs} elements
   * @param weights {@code outputs * inputs} elements
   * @param epilogue with the outputs; the same on every rank
   * @return the steps
   * @throws InvalidUsage as {@link #matmulReduceScatter}, or if a fused all-reduce can't have rows
   *     of that length
   */
  public Pipeline matmulAllReduce(
      int rows, DeviceBuffer in, DeviceBuffer weights, Epilogue epilogue) {
    OverlapSteps.Call call = steps.call(Operation.MATMUL_ALL_REDUCE, rows, in, weights, null);
    call.require(shape.inBytes(rows), 0);
    return call.fused(epilogue);
  }

  /**
   * {@link #matmulAllReduce(int, DeviceBuffer, DeviceBuffer, Epilogue)} with packed weights, whose
   * kernels are faster with few rows. Ranks may differ in whether and how their weights are packed:
   * each multiplies its own rows.
   *
   * @param rows 1 to the most of the weights' {@link PackedProducts}
   * @param in as {@link PackedMatrix#enqueue} needs it
   * @param weights of {@code outputs * inputs} ELEMENTS
   * @param epilogue with the outputs; the same on every rank
   * @return the steps
   * @throws InvalidUsage if the weights do not have the sizes and the type of the shape, and as
   *     {@link #matmulAllReduce(int, DeviceBuffer, DeviceBuffer, Epilogue)}
   */
  public Pipeline matmulAllReduce(
      int rows, DeviceBuffer in, PackedMatrix weights, Epilogue epilogue) {
    InvalidUsage.requireNonNull(weights, "matmul-all-reduce", "weights");
    return steps.fused(rows, in, weights, epilogue);
  }

  /**
   * Frees the memory after the enqueued work is done. Captured pipelines with these operations are
   * refused afterwards. Call it on every rank between the same operations. Idempotent.
   */
  @Override
  public void close() {
    lifecycle.close();
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.matmul;

import io.fluxccl.DataType;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.ReduceOp;
import io.fluxccl.collective.CollectiveCall;
import io.fluxccl.collective.Collectives;
import io.fluxccl.collective.Epilogue;
import io.fluxccl.collective.Pipeline;
import io.fluxccl.collective.RankTopology;
import io.fluxccl.collective.Registration;
import io.fluxccl.concurrent.Lifecycle;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceKind;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.device.cuda.CudaStream;
import io.fluxccl.device.host.FloatRow;
import io.fluxccl.device.host.HostKernel;
import io.fluxccl.matmul.OverlapTable.Operation;
import io.fluxccl.matmul.OverlapTable.Way;
import java.util.ArrayList;
import java.util.List;

/** The steps of the operations of {@link OverlappedProducts}, and the memory that they use. */
final class OverlapSteps {
  private static final String BRANCH = "product";
  private static final int ALIGNMENT = 256;

  /** The products of a device. */
  interface Multiplier extends AutoCloseable {
    /** Returns whether products in pieces can overlap with copies to the peers. */
    boolean canOverlap();

    /** Enqueues a product of 1 to {@link ProductShape#maxRows} rows. */
    void multiply(
        DeviceStream stream, int rows, DeviceBuffer in, DeviceBuffer weights, DeviceBuffer out);

    @Override
    void close();
  }

  /** Consecutive ranks, whose rows are multiplied by one product. */
  private record Run(int first, int count) {}

  private final Collectives collectives;
  private final ProductShape shape;
  private final RankTopology topology;
  private final Device device;
  private final Lifecycle lifecycle;
  private final Multiplier multiplier;

  /** Words of copy engines, bytes of the first all-gather, and rows that ranks exchange. */
  private final DeviceBuffer memory;

  private final long beginOffset;
  private final long rowsOffset;

  /** Null if no pieces are possible. */
  private DeviceBuffer product;

  /** Whether all ranks can overlap; false until they have agreed. */
  private boolean overlaps;

  /**
   * Allocates all memory, so that a rank without enough of it fails before others rely on it.
   *
   * @param lifecycle closes all that this object owns, also if this constructor fails
   */
  OverlapSteps(Collectives collectives, ProductShape shape, Lifecycle lifecycle) {
    this.collectives = collectives;
    this.shape = shape;
    this.lifecycle = lifecycle;
    this.topology = collectives.topology();
    this.device = collectives.communicator().device();
    this.multiplier =
        lifecycle.own(
            device.kind() == DeviceKind.CUDA
                ? new CudaOverlap((CudaDevice) device, shape, topology)
                : new HostProducts(shape));
    this.beginOffset = aligned(CudaOverlap.WORDS_BYTES);
    this.rowsOffset = aligned(beginOffset + shape.maxRows());
    long rowBytes = Math.max(shape.inBytes(shape.maxRows()), shape.outBytes(shape.maxRows()));
    this.memory = lifecycle.own(device.allocate(rowsOffset + rowBytes));
    if (multiplier.canOverlap()) {
      this.product = lifecycle.own(device.allocate(shape.outBytes(shape.maxRows())));
    }
  }

  private static long aligned(long bytes) {
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  }

  /** Returns the memory to register. */
  DeviceBuffer memory() {
    return memory;
  }

  /** Returns whether this rank can overlap. */
  boolean canOverlap() {
    return multiplier.canOverlap();
  }

  /** Returns whether all ranks can overlap operations of a number of rows. */
  boolean canOverlap(int rows) {
    return overlaps && rows % topology.nRanks() == 0;
  }

  /**
   * Uses the registered memory. Peers rely on it already, so a failure aborts the job.
   *
   * @param all whether all ranks can overlap
   */
  void bind(Registration registered, boolean all) {
    lifecycle.own(registered);
    overlaps = all && registered.stagedReason().isEmpty();
    if (overlaps) {
      try {
        overlap().bind(registered, rowsOffset, collectives.communicator().abortFlag());
      } catch (RuntimeException | Error e) {
        collectives.communicator().abort(FluxCclException.from(e));
        throw e;
      }
    } else if (product != null) {
      lifecycle.disown(product);
      product.close();
    }
  }

  private CudaOverlap overlap() {
    return (CudaOverlap) multiplier;
  }

  /** Returns an operation of 1 to the most rows; {@code out} may be null. */
  Call call(
      Operation operation, int rows, DeviceBuffer in, DeviceBuffer weights, DeviceBuffer out) {
    lifecycle.checkOpen();
    requireRows(OverlapTable.label(operation), rows);
    return new Call(operation, rows, in, weights, out);
  }

  /** Returns the steps of a fused all-reduce of products with packed weights. */
  Pipeline fused(int rows, DeviceBuffer in, PackedMatrix weights, Epilogue epilogue) {
    lifecycle.checkOpen();
    requireRows(OverlapTable.label(Operation.MATMUL_ALL_REDUCE), rows);
    shape.require(weights, topology.rank());
    DeviceBuffer sums = rows(0, rows);
    return collectives
        .pipeline()
        .enqueue(
            "packed matmul-all-reduce",
            stream -> {
              lifecycle.checkOpen();
              weights.enqueue(stream, rows, in, sums);
            })
        .then(fused(rows, epilogue));
  }

  private CollectiveCall fused(int rows, Epilogue epilogue) {
    return CollectiveCall.fusedAllReduce(rows(0, rows), rows, shape.outputs(), type(), epilogue);
  }

  private DataType type() {
    return shape.type();
  }

  private static ReduceOp sum() {
    return ReduceOp.SUM;
  }

  /** Returns rows of a product, in memory that is registered. */
  private DeviceBuffer rows(long first, long count) {
    return memory.slice(rowsOffset + shape.outBytes(first), shape.outBytes(count));
  }

  private void multiply(
      DeviceStream stream, int rows, DeviceBuffer in, DeviceBuffer weights, DeviceBuffer out) {
    multiplier.multiply(stream, rows, in, weights, out);
  }

  void requireRows(String call, int rows) {
    if (rows < 1 || rows > shape.maxRows()) {
      throw InvalidUsage.of(
          "%s on rank %d: rows=%d; give 1 to maxRows=%d",
          call, topology.rank(), rows, shape.maxRows());
    }
  }

  private Pipeline serial(Call call) {
    int rows = call.rows;
    DeviceBuffer out = call.out;
    if (call.operation == Operation.ALL_GATHER_MATMUL) {
      DeviceBuffer all = memory.slice(rowsOffset, shape.inBytes(rows));
      long count = (long) rows / topology.nRanks() * shape.inputs();
      return call.start()
          .then(CollectiveCall.allGather(call.in, all, count, type()))
          .enqueue(call.name(), stream -> multiply(stream, rows, all, call.weights, out));
    }
    DeviceBuffer all = rows(0, rows);
    return call.start()
        .enqueue(call.name(), stream -> multiply(stream, rows, call.in, call.weights, all))
        .then(
            call.operation == Operation.MATMUL_ALL_REDUCE
                ? CollectiveCall.allReduce(all, out, (long) rows * shape.outputs(), type(), sum())
                : CollectiveCall.reduceScatter(all, out, call.shareElements(), type(), sum()));
  }

  /**
   * Returns the other ranks in the order of copies, from the next rank on, as runs that do not wrap
   * around.
   *
   * @param most ranks of a run
   */
  private List<Run> runs(int most) {
    int n = topology.nRanks();
    List<Run> runs = new ArrayList<>();
    for (int ahead = 1; ahead < n; ahead += runs.get(runs.size() - 1).count) {
      int first = (topology.rank() + ahead) % n;
      runs.add(new Run(first, Math.min(most, Math.min(n - ahead, n - first))));
    }
    return runs;
  }

  /**
   * Copy engines bring the rows of each peer to that peer, after the product of the run that has
   * them. Own rows are multiplied last, while the last copies are made. Products of half of the
   * ranks' rows were faster than those of one rank's, and than those of all others' rows.
   */
  private Pipeline reduceScatterInPieces(Call call) {
    int share = call.rows / topology.nRanks();
    int rank = topology.rank();
    long outBytes = shape.outBytes(share);
    List<Run> runs = runs(Math.max(1, topology.nRanks() / 2));
    return call.startTogether()
        .enqueue(
            call.name(),
            stream -> {
              DeviceStream beside = stream.branch(BRANCH);
              beside.waitFor(stream);
              for (Run run : runs) {
                multiplyRun(beside, call, run);
                stream.waitFor(beside);
                for (int peer = run.first; peer < run.first + run.count; peer++) {
                  DeviceBuffer rows = product.slice(peer * outBytes, outBytes);
                  overlap().copy((CudaStream) stream, peer, rank * outBytes, rows);
                }
              }
              multiplyRun(beside, call, new Run(rank, 1));
              stream.waitFor(beside);
              overlap().await(stream, 0, topology.nRanks(), true);
              DeviceBuffer own = product.slice(rank * outBytes, outBytes);
              overlap().add(stream, rows(0, call.rows), own, call.out);
            });
  }

  private void multiplyRun(DeviceStream stream, Call call, Run run) {
    int share = call.rows / topology.nRanks();
    int count = run.count * share;
    long first = (long) run.first * share;
    multiply(
        stream,
        count,
        call.in.slice(shape.inBytes(first), shape.inBytes(count)),
        call.weights,
        product.slice(shape.outBytes(first), shape.outBytes(count)));
  }

  /**
   * Copy engines bring this rank's rows to its peers, each rank to another one at a time. Own rows
   * are multiplied first, and a peer's rows when they have arrived.
   */
  private Pipeline gatherInPieces(Call call) {
    int n = topology.nRanks();
    int share = call.rows / n;
    int rank = topology.rank();
    long inBytes = shape.inBytes(share);
    return call.startTogether()
        .enqueue(
            call.name(),
            stream -> {
              DeviceStream beside = stream.branch(BRANCH);
              beside.waitFor(stream);
              multiply(beside, share, call.in, call.weights, call.outRows(rank, 1));
              for (int step = 1; step < n; step++) {
                int to = (rank + n - step) % n;
                overlap().copy((CudaStream) stream, to, rank * inBytes, call.in.slice(0, inBytes));
                // A wait follows this rank's copy of the same step, so that no order in which the
                // device executes the branches makes ranks wait for each other in a cycle.
                beside.waitFor(stream);
                int from = (rank + step) % n;
                overlap().await(beside, from, 1, step == n - 1);
                DeviceBuffer rows = memory.slice(rowsOffset + from * inBytes, inBytes);
                multiply(beside, share, rows, call.weights, call.outRows(from, 1));
              }
              stream.waitFor(beside);
            });
  }

  /** One operation; its checks and first steps. */
  final class Call {
    final Operation operation;
    final int rows;
    final DeviceBuffer in;
    final DeviceBuffer weights;
    final DeviceBuffer out;

    private Call(
        Operation operation, int rows, DeviceBuffer in, DeviceBuffer weights, DeviceBuffer out) {
      this.operation = operation;
      this.rows = rows;
      this.in = in;
      this.weights = weights;
      this.out = out;
    }

    String name() {
      return OverlapTable.label(operation);
    }

    void requireShares() {
      if (rows % topology.nRanks() != 0) {
        throw InvalidUsage.of(
            "%s on rank %d: rows=%d; give a multiple of the %d ranks",
            name(), topology.rank(), rows, topology.nRanks());
      }
    }

    void require(long inBytes, long outBytes) {
      require("in", in, inBytes);
      require("weights", weights, shape.weightBytes());
      if (out != null || outBytes > 0) {
        require("out", out, outBytes);
        requireApart("in", in, inBytes, outBytes);
        requireApart("weights", weights, shape.weightBytes(), outBytes);
      }
    }

    private void require(String what, DeviceBuffer buffer, long bytes) {
      InvalidUsage.requireNonNull(buffer, name(), what);
      int alignment = device.kind() == DeviceKind.CUDA ? CudaOverlap.WORD : 1;
      if (buffer.device() != device
          || buffer.isClosed()
          || buffer.size() < bytes
          || buffer.address() % alignment != 0) {
        Object found = buffer.isClosed() ? "closed" : buffer;
        throw InvalidUsage.of(
            "%s on rank %d: %s is %s; give an open buffer of %s of at least %d bytes, aligned to"
                + " %d",
            name(), topology.rank(), what, found, device.description(), bytes, alignment);
      }
    }

    private void requireApart(String what, DeviceBuffer buffer, long bytes, long outBytes) {
      if (out.address() < buffer.address() + bytes && buffer.address() < out.address() + outBytes) {
        throw InvalidUsage.of(
            "%s on rank %d: out and %s overlap; give memory of its own",
            name(), topology.rank(), what);
      }
    }

    Pipeline steps(Way way) {
      if (way == Way.SERIAL) {
        return serial(this);
      }
      return switch (operation) {
        case MATMUL_REDUCE_SCATTER -> reduceScatterInPieces(this);
        case ALL_GATHER_MATMUL -> gatherInPieces(this);
        case MATMUL_ALL_REDUCE -> {
          DeviceBuffer own = outRows(topology.rank(), 1);
          Call scatter = new Call(operation, rows, in, weights, own);
          yield reduceScatterInPieces(scatter)
              .then(CollectiveCall.allGather(own, out, shareElements(), type()));
        }
      };
    }

    /** Returns the steps of a fused all-reduce of the product. */
    Pipeline fused(Epilogue epilogue) {
      return start()
          .enqueue(name(), stream -> multiply(stream, rows, in, weights, rows(0, rows)))
          .then(OverlapSteps.this.fused(rows, epilogue));
    }

    /** Returns the steps that check what may have been closed since; no peer waits yet. */
    Pipeline start() {
      return collectives
          .pipeline()
          .enqueue(
              "check of " + name(),
              stream -> {
                lifecycle.checkOpen();
                require("in", in, 0);
                require("weights", weights, 0);
                if (out != null) {
                  require("out", out, 0);
                }
              });
    }

    /**
     * Returns {@link #start}, and a short all-gather: peers' memory may be written after it. Its
     * count and type, one for each operation, let the ranks compare their calls.
     */
    Pipeline startTogether() {
      DataType type =
          switch (operation) {
            case MATMUL_REDUCE_SCATTER -> DataType.UINT8;
            case ALL_GATHER_MATMUL -> DataType.INT8;
            case MATMUL_ALL_REDUCE -> DataType.FLOAT8_E4M3;
          };
      int share = rows / topology.nRanks();
      DeviceBuffer all = memory.slice(beginOffset, rows);
      DeviceBuffer own = all.slice((long) topology.rank() * share, share);
      return start().then(CollectiveCall.allGather(own, all, share, type));
    }

    /** Returns the elements of a rank's share of the product. */
    long shareElements() {
      return (long) rows / topology.nRanks() * shape.outputs();
    }

    /** Returns the rows of {@code out} of consecutive ranks. */
    DeviceBuffer outRows(int first, int count) {
      long bytes = shape.outBytes(rows / topology.nRanks());
      return out.slice(first * bytes, count * bytes);
    }
  }

  /** Products on the host device. Sums are of 32 bits, in the order of the inputs. */
  private static final class HostProducts implements Multiplier {
    private final ProductShape shape;
    private final HostKernel kernel;

    HostProducts(ProductShape shape) {
      this.shape = shape;
      this.kernel =
          HostKernel.of(
              "matmul",
              (thread, args) ->
                  multiply(
                      args.get(0, DeviceBuffer.class),
                      args.get(1, DeviceBuffer.class),
                      args.get(2, DeviceBuffer.class),
                      args.getInt(3)));
    }

    @Override
    public boolean canOverlap() {
      return false;
    }

    @Override
    public void multiply(
        DeviceStream stream, int rows, DeviceBuffer in, DeviceBuffer weights, DeviceBuffer out) {
      stream.launch(kernel, 1, 1, KernelArgs.of(in, weights, out, rows));
    }

    /** Reads by address: the stream keeps the memory of a buffer that is closed meanwhile. */
    private void multiply(DeviceBuffer in, DeviceBuffer weights, DeviceBuffer out, int rows) {
      DataType type = shape.type();
      FloatRow[] matrix = new FloatRow[rows];
      FloatRow[] products = new FloatRow[rows];
      for (int row = 0; row < rows; row++) {
        matrix[row] = new FloatRow();
        matrix[row].read(type, in.address() + shape.inBytes(row), shape.inputs());
        products[row] = new FloatRow();
        products[row].clear(shape.outputs());
      }
      FloatRow factors = new FloatRow();
      for (int output = 0; output < shape.outputs(); output++) {
        factors.read(type, weights.address() + shape.inBytes(output), shape.inputs());
        for (int row = 0; row < rows; row++) {
          float sum = 0;
          for (int input = 0; input < shape.inputs(); input++) {
            sum += matrix[row].values()[input] * factors.values()[input];
          }
          products[row].values()[output] = sum;
        }
      }
      for (int row = 0; row < rows; row++) {
        products[row].write(type, out.address() + shape.outBytes(row), shape.outputs());
      }
    }

    @Override
    public void close() {
      // Owns nothing.
    }
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.concurrent.Closing;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceKind;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.Kernel;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.device.host.FloatRow;
import io.fluxccl.device.host.HostKernel;
import io.fluxccl.device.host.HostMemory;
import io.fluxccl.device.host.KernelThread;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/**
 * The staging buffer in which small all-reduces of one type and operation are one call. A kernel
 * copies the inputs there, each to a multiple of 16 bytes; the call works in place; a kernel copies
 * the results to the outputs. All ranks have registered the buffer. Buckets of a lane use it one
 * after the other, in the order of the stream.
 *
 * <p>Compressed all-reduces pass through it, too: the kernels convert the elements, and the call is
 * one of the type as which they travel. FLOAT8_E4M3 has few exponents. Therefore ranks first agree
 * on the largest magnitude of each tensor, by an all-reduce of the bits of these floats. Kernels
 * multiply by a power of two for which a sum of that value of all ranks is below 256.
 */
final class NamedBuckets implements AutoCloseable {
  /** The most calls of a bucket: their numbers fit into one record, and a table into arguments. */
  static final int MOST_MEMBERS = 120;

  /** Bytes of a tensor that a block of a GPU handles. */
  private static final int PIECE = 16384;

  /** The most compressed bytes of a call: four times as many are a size in a table. */
  private static final long MOST_COMPRESSED = 1 << 28;

  /**
   * Bytes at the begin of the buffer for the largest magnitudes of members on all ranks. As many
   * bytes follow for those on this rank; on GPUs they are 0 except between a search and the
   * packing.
   */
  private static final int LARGEST_BYTES = 512;

  /** The offset of the tensors in the buffer. */
  private static final int DATA_OFFSET = 2 * LARGEST_BYTES;

  private static final int ALIGNMENT = 16;
  private static final int THREADS = 256;

  /** The task of a kernel. */
  private enum Work {
    PACK,
    UNPACK,
    FIND_LARGEST
  }

  private final DeviceBuffer staging;

  /** Null until it is registered. */
  private Registration registration;

  private final Kernel kernel;

  /** Finds the largest magnitudes; null on the host device. */
  private final Kernel largest;

  /** The binary logarithm of the number of ranks, rounded up. */
  private final int logRanks;

  /** Loads the kernels and allocates the staging buffer, which no rank waits for. */
  NamedBuckets(Lane lane, NamedOptions options) {
    Device device = lane.communicator.device();
    boolean isHost = device.kind() == DeviceKind.HOST;
    this.logRanks = Integer.SIZE - Integer.numberOfLeadingZeros(lane.peers.nRanks() - 1);
    this.kernel =
        isHost
            ? HostKernel.of("bucket", NamedBuckets::workOnHost)
            : GpuKernels.one((CudaDevice) device, "bucket", 0);
    this.largest = isHost ? null : GpuKernels.one((CudaDevice) device, "bucket_largest", 0);
    this.staging = device.allocate(DATA_OFFSET + options.bucketBytes());
  }

  /** Registers the staging buffer, like all ranks. Callbacks may block. */
  CompletableFuture<Void> register(Lane lane) {
    return lane.registrations.register(staging).thenAccept(made -> registration = made);
  }

  /** Returns the bytes of a bucket. */
  long bytes() {
    return staging.size() - DATA_OFFSET;
  }

  /** Returns the bytes that a tensor takes in the buffer. */
  static long padded(long bytes) {
    return bytes + ALIGNMENT - 1 & -ALIGNMENT;
  }

  /**
   * Returns calls as one step.
   *
   * @param wire the type as which elements travel; null: their own. If it is not null, a single
   *     call may be of any size
   */
  Step step(List<CollectiveCall> calls, DataType wire) {
    List<Step> parts = new ArrayList<>();
    if (calls.size() > 1) {
      addParts(parts, calls, wire);
    } else {
      CollectiveCall call = calls.get(0);
      long most = (Math.min(bytes(), MOST_COMPRESSED) & -ALIGNMENT) / wire.size();
      for (long begin = 0; begin < call.count(); begin += most) {
        addParts(parts, List.of(part(call, begin, Math.min(most, call.count() - begin))), wire);
      }
    }
    return new Bucket(calls, parts);
  }

  private static CollectiveCall part(CollectiveCall call, long begin, long count) {
    long offset = call.type().bytes(begin);
    long bytes = call.type().bytes(count);
    return CollectiveCall.allReduce(
        call.input().slice(offset, bytes),
        call.output().slice(offset, bytes),
        count,
        call.type(),
        call.op());
  }

  private void addParts(List<Step> parts, List<CollectiveCall> calls, DataType wire) {
    CollectiveCall first = calls.get(0);
    DataType type = wire == null ? first.type() : wire;
    long bytes = calls.stream().mapToLong(call -> padded(type.bytes(call.count()))).sum();
    if (wire == DataType.FLOAT8_E4M3) {
      parts.add(Step.work("largest", stream -> work(stream, calls, wire, Work.FIND_LARGEST)));
      parts.add(allReduce(LARGEST_BYTES, 0, calls.size(), DataType.INT32, ReduceOp.MAX));
    }
    parts.add(Step.work("pack", stream -> work(stream, calls, wire, Work.PACK)));
    parts.add(allReduce(DATA_OFFSET, DATA_OFFSET, bytes / type.size(), type, first.op()));
    parts.add(Step.work("unpack", stream -> work(stream, calls, wire, Work.UNPACK)));
  }

  private Step allReduce(long from, long to, long count, DataType type, ReduceOp op) {
    DeviceBuffer input = staging.slice(from, type.bytes(count));
    DeviceBuffer output = staging.slice(to, type.bytes(count));
    return new Step.Collect(CollectiveCall.allReduce(input, output, count, type, op));
  }

  /** Several all-reduces that are one call, or one that is compressed. */
  private record Bucket(List<CollectiveCall> members, List<Step> parts) implements Step {
    @Override
    public void check(Lane lane, boolean first) {
      members.forEach(call -> lane.algorithms.check(call, true));
      parts.forEach(part -> part.check(lane, first));
    }

    @Override
    public void enqueue(Lane lane, DeviceStream stream) {
      enqueue(lane, stream, false);
    }

    @Override
    public void enqueue(Lane lane, DeviceStream stream, boolean isCompared) {
      parts.forEach(part -> part.enqueue(lane, stream, isCompared));
    }

    @Override
    public CollectiveCall recorded() {
      List<CollectiveCall> calls = calls();
      return calls.isEmpty() ? members.get(0) : calls.get(calls.size() - 1);
    }

    @Override
    public void compare(Lane lane) {
      parts.forEach(part -> part.compare(lane));
    }

    @Override
    public List<CollectiveCall> calls() {
      return parts.stream().flatMap(part -> part.calls().stream()).toList();
    }

    @Override
    public int rounds() {
      return (int) Step.rounds(parts);
    }

    @Override
    public long bytes(int nRanks) {
      long bytes = 0;
      for (int i = 0; i < parts.size(); i++) {
        bytes += parts.get(i).bytes(nRanks);
      }
      return bytes;
    }

    @Override
    public boolean involvesPeers() {
      return true;
    }
  }

  private void work(DeviceStream stream, List<CollectiveCall> calls, DataType wire, Work work) {
    if (largest == null) {
      KernelArgs args = KernelArgs.of(new HostWork(calls, wire, work, staging.address(), logRanks));
      stream.launch(kernel, 1, 1, args);
      return;
    }
    Table table = new Table(calls, wire, work, logRanks);
    Kernel task = work == Work.FIND_LARGEST ? largest : kernel;
    stream.launch(task, table.blocks, THREADS, KernelArgs.of(table, staging));
  }

  private static long[] addressesOf(List<CollectiveCall> calls, Work work) {
    boolean isOutput = work == Work.UNPACK;
    return calls.stream()
        .mapToLong(call -> isOutput ? call.outputAddress() : call.inputAddress())
        .toArray();
  }

  private static void workOnHost(KernelThread thread, KernelArgs args) {
    args.get(0, HostWork.class).run();
  }

  /** Work on the host device; has addresses, as buffers may be closed once it is enqueued. */
  private static final class HostWork {
    /** Elements that are converted at once, in cache. */
    private static final int ROW = 4096;

    private final Work work;
    private final DataType wire;
    private final long[] tensors;
    private final long[] counts;
    private final int elementBytes;
    private final long staging;
    private final int logRanks;
    private final FloatRow row = new FloatRow();

    HostWork(List<CollectiveCall> calls, DataType wire, Work work, long staging, int logRanks) {
      this.work = work;
      this.wire = wire;
      this.tensors = addressesOf(calls, work);
      this.counts = calls.stream().mapToLong(CollectiveCall::count).toArray();
      this.elementBytes = (wire == null ? calls.get(0).type() : wire).size();
      this.staging = staging;
      this.logRanks = logRanks;
    }

    void run() {
      long next = staging + DATA_OFFSET;
      for (int i = 0; i < tensors.length; i++) {
        long bytes = counts[i] * elementBytes;
        if (work == Work.FIND_LARGEST) {
          HostMemory.putInt(staging + LARGEST_BYTES + (long) i * Integer.BYTES, largestBits(i));
        } else if (wire != null) {
          convert(i, next);
        } else if (work == Work.UNPACK) {
          HostMemory.copy(tensors[i], next, bytes);
        } else {
          HostMemory.copy(next, tensors[i], bytes);
        }
        next += padded(bytes);
      }
    }

    private int largestBits(int tensor) {
      int largest = 0;
      for (long i = 0; i < counts[tensor]; i++) {
        int bits = HostMemory.getInt(tensors[tensor] + i * Float.BYTES);
        largest = Math.max(largest, bits & Integer.MAX_VALUE);
      }
      return largest;
    }

    private void convert(int tensor, long staged) {
      boolean packs = work == Work.PACK;
      float factor = 1;
      if (wire == DataType.FLOAT8_E4M3) {
        int largest = HostMemory.getInt(staging + (long) tensor * Integer.BYTES);
        factor = factor(largest, logRanks, packs);
      }
      for (long begin = 0; begin < counts[tensor]; begin += ROW) {
        int count = (int) Math.min(ROW, counts[tensor] - begin);
        long own = tensors[tensor] + begin * Float.BYTES;
        long compressed = staged + begin * elementBytes;
        row.read(packs ? DataType.FLOAT32 : wire, packs ? own : compressed, count);
        float[] values = row.values();
        for (int i = 0; i < count; i++) {
          values[i] *= factor;
        }
        row.write(packs ? wire : DataType.FLOAT32, packs ? compressed : own, count);
      }
    }
  }

  /** Returns the factor of a tensor: the twin of {@code factor} in bucket.cu. */
  static float factor(int largestBits, int logRanks, boolean packs) {
    int exponent = (largestBits >>> 23) - 127;
    if (exponent > Float.MAX_EXPONENT && !packs) {
      return Float.NaN;
    }
    int power = Math.max(-126, Math.min(7 - exponent - logRanks, 126));
    return Math.scalb(1f, packs ? power : -power);
  }

  /** The twin of {@code BucketTable} in bucket.cu. */
  private static final class Table extends KernelStruct {
    private static final int BEGINS = MOST_MEMBERS * Long.BYTES;
    private static final int ARRAY_BYTES = MOST_MEMBERS * Integer.BYTES;
    private static final int MEMBERS = BEGINS + 3 * ARRAY_BYTES;

    private int blocks;

    Table(List<CollectiveCall> calls, DataType wire, Work work, int logRanks) {
      super(MEMBERS + 4 * Integer.BYTES);
      long[] tensors = addressesOf(calls, work);
      DataType type = wire == null ? calls.get(0).type() : wire;
      long begin = 0;
      for (int i = 0; i < tensors.length; i++) {
        int bytes = (int) calls.get(i).countBytes();
        at(i * Long.BYTES).putLong(tensors[i]);
        at(BEGINS + i * Integer.BYTES).putInt((int) begin);
        at(BEGINS + ARRAY_BYTES + i * Integer.BYTES).putInt(bytes);
        at(BEGINS + 2 * ARRAY_BYTES + i * Integer.BYTES).putInt(blocks);
        begin += padded(type.bytes(calls.get(i).count()));
        blocks += (bytes + PIECE - 1) / PIECE;
      }
      at(MEMBERS)
          .putInt(tensors.length)
          .putInt(work == Work.UNPACK ? 1 : 0)
          .putInt(wire == null ? 0 : wire.ordinal() + 1)
          .putInt(logRanks);
    }
  }

  /** Frees the buffer. */
  @Override
  public void close() {
    Closing.all(registration, staging);
  }
}

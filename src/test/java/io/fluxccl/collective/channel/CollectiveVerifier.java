// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.channel;

import static io.fluxccl.DataType.INT32;
import static io.fluxccl.ReduceOp.SUM;
import static io.fluxccl.collective.Collective.BROADCAST;
import static io.fluxccl.collective.Collective.GATHER;
import static io.fluxccl.collective.Collective.REDUCE;
import static io.fluxccl.collective.Collective.SCATTER;
import static io.fluxccl.collective.CollectiveCall.allGather;
import static io.fluxccl.collective.CollectiveCall.allReduce;
import static io.fluxccl.collective.CollectiveCall.allToAll;
import static io.fluxccl.collective.CollectiveCall.allToAllv;
import static io.fluxccl.collective.CollectiveCall.barrier;
import static io.fluxccl.collective.CollectiveCall.broadcast;
import static io.fluxccl.collective.CollectiveCall.gather;
import static io.fluxccl.collective.CollectiveCall.reduce;
import static io.fluxccl.collective.CollectiveCall.reduceScatter;
import static io.fluxccl.collective.CollectiveCall.scatter;
import static io.fluxccl.collective.CollectiveCall.sendReceive;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.CollectiveCall;
import io.fluxccl.collective.Collectives;
import io.fluxccl.collective.Registration;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceKind;
import io.fluxccl.device.host.HostReduction;
import io.fluxccl.testing.EmulatedGpus;
import io.fluxccl.testing.ParkingStepVerifier;
import io.fluxccl.testing.Rounds;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Duration;
import java.util.Arrays;
import java.util.stream.IntStream;
import org.agrona.concurrent.UnsafeBuffer;

/**
 * Runs a collective on values that any rank can compute, and compares the output bit by bit with
 * HostReduction. Values are small integers, so sums are exact in any order.
 */
final class CollectiveVerifier {
  private static final Duration LONG = Duration.ofSeconds(120);
  private static final byte GUARD = 0x5a;
  private static final int GUARD_BYTES = 64;
  private static final int STEP = 1024;

  /** The input values of every type: 0, 1, 2, repeated. */
  private static final byte[][] TURNS =
      Arrays.stream(DataType.values()).map(CollectiveVerifier::turns).toArray(byte[][]::new);

  private final Collectives collectives;
  private final Device device;
  private final int rank;
  private final int nRanks;
  private final boolean registered;

  /**
   * Interval of the calls that run; all ranks skip the same calls. Without -Plong it is 5 on the
   * host device and 6 on emulated GPUs, which are slow. On real GPUs all calls run.
   */
  private final int every;

  private int round;

  CollectiveVerifier(Collectives collectives) {
    this(collectives, false);
  }

  /** Creates a trial. If it registers its buffers, their sizes must be equal on all ranks. */
  CollectiveVerifier(Collectives collectives, boolean registered) {
    this.registered = registered;
    this.collectives = collectives;
    boolean onHost = collectives.communicator().device().kind() == DeviceKind.HOST;
    this.every = Rounds.LONG ? 1 : EmulatedGpus.HERE ? 6 : onHost ? 5 : 1;
    this.device = collectives.communicator().device();
    this.rank = collectives.topology().rank();
    this.nRanks = collectives.topology().nRanks();
  }

  /** A collective, its element count and type, and its other arguments. */
  record Shape(Collective kind, int count, DataType type, ReduceOp op, int root, boolean inPlace) {
    static Shape of(Collective kind, int count) {
      return new Shape(kind, count, INT32, SUM, 0, false);
    }

    Shape rootedAt(int newRoot) {
      return new Shape(kind, count, type, op, newRoot, inPlace);
    }

    Shape with(DataType newType, ReduceOp newOp) {
      return new Shape(kind, count, newType, newOp, root, inPlace);
    }

    Shape made(boolean isInPlace) {
      return new Shape(kind, count, type, op, root, isInPlace);
    }
  }

  /** Runs the call on memory that starts {@code shift} elements after a cache line. */
  void run(Shape shape, int shift) {
    int seed = round++;
    if (seed > 0
        && (seed + seed / every + shape.count() + shape.type().ordinal() + nRanks) % every != 0) {
      return;
    }
    int size = shape.type().size();
    long inputLength = inputElements(shape, rank);
    long outputLength = outputElements(shape, rank);
    long room = Math.max(inputLength, outputLength) * size + 2 * GUARD_BYTES + shift * size;
    try (DeviceBuffer in = device.allocate(room);
        DeviceBuffer out = device.allocate(room);
        Registration inKnown = registered ? collectives.register(in).join() : null;
        Registration outKnown = registered ? collectives.register(out).join() : null) {
      long begin = GUARD_BYTES + (long) shift * size;
      fillGuard(in, room);
      fillGuard(out, room);
      boolean inPlace = shape.inPlace();
      DeviceBuffer home = inPlace ? out : in;
      long inputAt = begin;
      long outputAt = begin;
      if (inPlace) {
        long part = (long) rank * shape.count() * size;
        switch (shape.kind()) {
          case ALL_GATHER, GATHER -> inputAt += hasOutput(shape, rank) ? part : 0;
          case REDUCE_SCATTER, SCATTER -> outputAt += hasInput(shape, rank) ? part : 0;
          default -> {}
        }
      }
      byte[] input = input(shape, seed, rank);
      upload(home, inputAt, input);
      CollectiveCall call =
          call(
              shape, slice(home, inputAt, input.length), slice(out, outputAt, outputLength * size));
      ParkingStepVerifier.create(collectives.run(call), LONG).expectComplete().verify(LONG);
      byte[] expected = expected(shape, seed);
      assertBytes(out, outputAt, expected, "output", shape);
      if (!inPlace) {
        assertBytes(in, inputAt, input, "input", shape);
        byte[] guard = new byte[GUARD_BYTES];
        Arrays.fill(guard, GUARD);
        assertBytes(out, outputAt + outputLength * size, guard, "after the output", shape);
        assertBytes(out, outputAt - GUARD_BYTES, guard, "before the output", shape);
      }
    }
  }

  private void assertBytes(
      DeviceBuffer buffer, long at, byte[] expected, String place, Shape shape) {
    byte[] actual = download(buffer, at, expected.length);
    int first = Arrays.mismatch(actual, expected);
    if (first >= 0) {
      assertThat(actual[first])
          .as("%s of %s on rank %d of %d: byte %d", place, shape, rank, nRanks, first)
          .isEqualTo(expected[first]);
    }
  }

  private static DeviceBuffer slice(DeviceBuffer buffer, long offset, long length) {
    return length == 0 ? null : buffer.slice(offset, length);
  }

  private CollectiveCall call(Shape shape, DeviceBuffer in, DeviceBuffer out) {
    int count = shape.count();
    DataType type = shape.type();
    return switch (shape.kind()) {
      case ALL_REDUCE -> allReduce(in, out, count, type, shape.op());
      case ALL_GATHER -> allGather(in, out, count, type);
      case REDUCE_SCATTER -> reduceScatter(in, out, count, type, shape.op());
      case BROADCAST ->
          broadcast(
              rank == shape.root() || !shape.inPlace() ? in : out, out, count, type, shape.root());
      case REDUCE ->
          reduce(in, hasOutput(shape, rank) ? out : null, count, type, shape.op(), shape.root());
      case ALL_TO_ALL -> allToAll(in, out, count, type);
      case GATHER -> gather(in, out, count, type, shape.root());
      case SCATTER -> scatter(in, out, count, type, shape.root());
      case SEND_RECEIVE ->
          sendReceive(
              in, count, (rank + 1) % nRanks, out, count, (rank + nRanks - 1) % nRanks, type);
      case BARRIER -> barrier();
      case FUSED_ALL_REDUCE, DISPATCH, COMBINE ->
          throw new IllegalArgumentException("has tests of its own");
      case ALL_TO_ALL_V -> allToAllv(in, counts(shape, rank), out, receiveCounts(shape), type);
    };
  }

  /** Returns a count of an all-to-all-v, between 0 and the shape's count. */
  private long countOf(Shape shape, int from, int to) {
    long mixed = (from * 0x9e3779b97f4a7c15L + to * 0xc2b2ae3d27d4eb4fL + shape.count()) >>> 20;
    return mixed % 4 == 0 ? 0 : mixed % (shape.count() + 1L);
  }

  private long[] counts(Shape shape, int from) {
    return IntStream.range(0, nRanks).mapToLong(to -> countOf(shape, from, to)).toArray();
  }

  private long[] receiveCounts(Shape shape) {
    return IntStream.range(0, nRanks).mapToLong(from -> countOf(shape, from, rank)).toArray();
  }

  private boolean hasInput(Shape shape, int of) {
    return shape.kind() != SCATTER && shape.kind() != BROADCAST || of == shape.root();
  }

  private boolean hasOutput(Shape shape, int of) {
    return shape.kind() != GATHER && shape.kind() != REDUCE || of == shape.root();
  }

  private long inputElements(Shape shape, int of) {
    return switch (shape.kind()) {
      case BARRIER -> 0;
      case REDUCE_SCATTER, ALL_TO_ALL -> (long) shape.count() * nRanks;
      case SCATTER -> of == shape.root() ? (long) shape.count() * nRanks : 0;
      case BROADCAST -> of == shape.root() ? shape.count() : 0;
      case ALL_TO_ALL_V -> Arrays.stream(counts(shape, of)).sum();
      default -> shape.count();
    };
  }

  private long outputElements(Shape shape, int of) {
    return switch (shape.kind()) {
      case BARRIER -> 0;
      case ALL_GATHER, ALL_TO_ALL -> (long) shape.count() * nRanks;
      case GATHER -> of == shape.root() ? (long) shape.count() * nRanks : 0;
      case REDUCE -> of == shape.root() ? shape.count() : 0;
      case ALL_TO_ALL_V -> Arrays.stream(receiveCounts(shape)).sum();
      default -> shape.count();
    };
  }

  private byte[] input(Shape shape, int seed, int of) {
    byte[] bytes = new byte[(int) inputElements(shape, of) * shape.type().size()];
    fill(bytes, 0, bytes.length, shape, seed, of, 0);
    return bytes;
  }

  /**
   * Puts a rank's input there, from one of its elements on. Element i is (i + of * 5 + seed + i /
   * STEP) % 3: the values take turns, and those in different blocks are out of step.
   */
  private void fill(byte[] out, int at, int bytes, Shape shape, int seed, int of, int first) {
    int size = shape.type().size();
    byte[] turns = TURNS[shape.type().ordinal()];
    int i = first;
    int end = first + bytes / size;
    while (i < end) {
      int n = Math.min(end - i, STEP - i % STEP);
      System.arraycopy(
          turns, (i + of * 5 + seed + i / STEP) % 3 * size, out, at + (i - first) * size, n * size);
      i += n;
    }
  }

  private static byte[] turns(DataType type) {
    byte[] bytes = new byte[(STEP + 2) * type.size()];
    ByteBuffer out = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
    for (int i = 0; i < STEP + 2; i++) {
      put(out, type, i % 3);
    }
    return bytes;
  }

  private static void put(ByteBuffer out, DataType type, int value) {
    switch (type) {
      case INT8, UINT8 -> out.put((byte) value);
      case INT32, UINT32 -> out.putInt(value);
      case INT64, UINT64 -> out.putLong(value);
      case FLOAT16 -> out.putShort((short) new int[] {0, 0x3c00, 0x4000}[value]);
      case BFLOAT16 -> out.putShort((short) (Float.floatToIntBits(value) >>> 16));
      case FLOAT32 -> out.putFloat(value);
      case FLOAT64 -> out.putDouble(value);
      case FLOAT8_E4M3 -> out.put((byte) new int[] {0, 0x38, 0x40}[value]);
      case FLOAT8_E5M2 -> out.put((byte) new int[] {0, 0x3c, 0x40}[value]);
    }
  }

  private byte[] expected(Shape shape, int seed) {
    int size = shape.type().size();
    int part = shape.count() * size;
    byte[] out = new byte[(int) outputElements(shape, rank) * size];
    switch (shape.kind()) {
      case ALL_REDUCE -> reduced(shape, seed, 0, out);
      case REDUCE_SCATTER -> reduced(shape, seed, rank * part, out);
      case REDUCE -> {
        if (rank == shape.root()) {
          reduced(shape, seed, 0, out);
        }
      }
      case BROADCAST -> fill(out, 0, part, shape, seed, shape.root(), 0);
      case SCATTER -> fill(out, 0, part, shape, seed, shape.root(), rank * shape.count());
      case ALL_GATHER, GATHER -> {
        for (int from = 0; from < nRanks && out.length > 0; from++) {
          fill(out, from * part, part, shape, seed, from, 0);
        }
      }
      case ALL_TO_ALL -> {
        for (int from = 0; from < nRanks; from++) {
          fill(out, from * part, part, shape, seed, from, rank * shape.count());
        }
      }
      case SEND_RECEIVE -> fill(out, 0, part, shape, seed, (rank + nRanks - 1) % nRanks, 0);
      case ALL_TO_ALL_V -> {
        int at = 0;
        for (int from = 0; from < nRanks; from++) {
          long[] counts = counts(shape, from);
          int offset = (int) Arrays.stream(counts, 0, rank).sum();
          int length = (int) counts[rank] * size;
          fill(out, at, length, shape, seed, from, offset);
          at += length;
        }
      }
      default -> {}
    }
    return out;
  }

  private void reduced(Shape shape, int seed, int offset, byte[] out) {
    if (out.length == 0) {
      return;
    }
    UnsafeBuffer[] inputs = new UnsafeBuffer[nRanks];
    long[] sources = new long[nRanks];
    for (int of = 0; of < nRanks; of++) {
      inputs[of] = new UnsafeBuffer(ByteBuffer.allocateDirect(out.length));
      byte[] input = new byte[out.length];
      fill(input, 0, out.length, shape, seed, of, offset / shape.type().size());
      inputs[of].putBytes(0, input);
      sources[of] = inputs[of].addressOffset();
    }
    UnsafeBuffer result = new UnsafeBuffer(ByteBuffer.allocateDirect(out.length));
    new HostReduction()
        .reduce(
            shape.type(),
            shape.op(),
            sources,
            nRanks,
            new long[] {result.addressOffset()},
            1,
            out.length / shape.type().size(),
            nRanks);
    result.getBytes(0, out);
    java.lang.ref.Reference.reachabilityFence(inputs);
  }

  private static void fillGuard(DeviceBuffer buffer, long length) {
    byte[] bytes = new byte[(int) length];
    Arrays.fill(bytes, GUARD);
    upload(buffer, 0, bytes);
  }

  private static void upload(DeviceBuffer buffer, long offset, byte[] bytes) {
    if (bytes.length > 0) {
      buffer.upload(offset, bytes);
    }
  }

  private static byte[] download(DeviceBuffer buffer, long offset, int length) {
    byte[] bytes = new byte[length];
    if (length > 0) {
      buffer.download(offset, bytes);
    }
    return bytes;
  }
}

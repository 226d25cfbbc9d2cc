// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.host;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.CollectiveCall;
import io.fluxccl.collective.ExactElements;
import io.fluxccl.device.DeviceBuffer;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;
import java.util.List;
import java.util.Random;

/**
 * One random collective whose result every rank can compute. All ranks draw it from an equal seed.
 */
final class RandomCollectiveCase {
  private static final int GUARD = 64;
  private static final byte UNTOUCHED = 0x5a;

  final Collective collective;
  final DataType type;
  final ReduceOp op;
  final int nRanks;
  final int count;
  final int root;
  final boolean inPlace;
  final int[][] counts; // of all-to-all-v: from, to
  final int shift; // of a send-receive: to rank + shift
  private final int seed;
  private final int offset;

  private RandomCollectiveCase(Random random, int nRanks, Collective collective, int maxBytes) {
    this.nRanks = nRanks;
    this.collective = collective;
    this.type = DataType.values()[random.nextInt(DataType.values().length)];
    this.op = ReduceOp.values()[random.nextInt(ReduceOp.values().length)];
    this.count = draw(random, maxBytes / type.size());
    this.root = random.nextInt(nRanks);
    this.inPlace =
        random.nextBoolean()
            && collective != Collective.ALL_TO_ALL_V
            && collective != Collective.SEND_RECEIVE;
    this.counts = new int[nRanks][nRanks];
    for (int[] row : counts) {
      for (int i = 0; i < nRanks; i++) {
        row[i] = random.nextInt(3) == 0 ? 0 : draw(random, maxBytes / type.size());
      }
    }
    this.shift = random.nextInt(nRanks);
    this.seed = random.nextInt(1000);
    this.offset = 8 * random.nextInt(20);
  }

  /** Draws a count: mostly small or odd ones, and some of the largest. */
  private static int draw(Random random, int max) {
    return switch (random.nextInt(4)) {
      case 0 -> 1 + random.nextInt(9);
      case 1 -> 1 + random.nextInt(Math.max(1, Math.min(3000, max)));
      case 2 -> random.nextInt(max) & -64;
      default -> 1 + random.nextInt(max);
    };
  }

  static RandomCollectiveCase draw(Random random, int nRanks, int maxBytes) {
    List<Collective> all = Collective.plain();
    return new RandomCollectiveCase(random, nRanks, all.get(random.nextInt(all.size())), maxBytes);
  }

  static RandomCollectiveCase of(Random random, int nRanks, Collective collective, int maxBytes) {
    return new RandomCollectiveCase(random, nRanks, collective, maxBytes);
  }

  /** Returns the bytes of memory that a rank needs for an exercise of that size. */
  static long memory(int nRanks, int maxBytes) {
    return 2L * (maxBytes + 8) * nRanks + 4 * GUARD + 8 * 20 + 64;
  }

  /** An exercise bound to a rank's memory. */
  final class Run {
    final CollectiveCall call;
    private final int rank;
    private final DeviceBuffer memory;
    private final long outputAt;
    private final int inputBytes;
    private final int outputBytes;
    private final long inputAt;

    private Run(int rank, DeviceBuffer memory) {
      this.rank = rank;
      this.memory = memory;
      long part = (long) count * type.size();
      inputBytes = inputBytes(rank);
      outputBytes = outputBytes(rank);
      boolean gathers =
          collective == Collective.ALL_GATHER || collective == Collective.GATHER && rank == root;
      boolean scatters =
          collective == Collective.REDUCE_SCATTER
              || collective == Collective.SCATTER && rank == root;
      long first = offset + GUARD;
      long second = first + roundUp(Math.max(inputBytes, maxInput())) + GUARD;
      if (!inPlace) {
        inputAt = first;
        outputAt = second;
      } else if (gathers) {
        outputAt = first;
        inputAt = first + rank * part;
      } else {
        inputAt = first;
        outputAt = scatters ? first + rank * part : sharesMemory() ? first : second;
      }
      fill(memory);
      call =
          call(
              memory.slice(inputAt, Math.max(1, inputBytes)),
              memory.slice(outputAt, Math.max(1, outputBytes)));
    }

    /** Products of zero and negative values are -0, which exact arithmetic does not know. */
    private void dropSignsOfZeros(byte[] got) {
      int size = type.size();
      for (int at = (int) outputAt;
          collective.reduces() && type.isFloatingPoint() && at < outputAt + outputBytes;
          at += size) {
        boolean zero = got[at + size - 1] == (byte) 0x80;
        for (int i = 0; i < size - 1; i++) {
          zero &= got[at + i] == 0;
        }
        if (zero) {
          got[at + size - 1] = 0;
        }
      }
    }

    private long maxInput() {
      long most = 0;
      for (int r = 0; r < nRanks; r++) {
        most = Math.max(most, inputBytes(r));
      }
      return most;
    }

    private boolean sharesMemory() {
      return switch (collective) {
        case ALL_REDUCE, REDUCE, BROADCAST, ALL_TO_ALL -> true;
        default -> false;
      };
    }

    private void fill(DeviceBuffer to) {
      byte[] clean = new byte[(int) to.size()];
      Arrays.fill(clean, UNTOUCHED);
      System.arraycopy(input(rank), 0, clean, (int) inputAt, inputBytes);
      to.upload(0, clean);
    }

    private CollectiveCall call(DeviceBuffer input, DeviceBuffer output) {
      int to = (rank + shift) % nRanks;
      int from = (rank + nRanks - shift) % nRanks;
      return switch (collective) {
        case ALL_REDUCE -> CollectiveCall.allReduce(input, output, count, type, op);
        case ALL_GATHER -> CollectiveCall.allGather(input, output, count, type);
        case REDUCE_SCATTER -> CollectiveCall.reduceScatter(input, output, count, type, op);
        case BROADCAST ->
            CollectiveCall.broadcast(
                rank == root || inPlace ? input : null, output, count, type, root);
        case REDUCE ->
            CollectiveCall.reduce(input, rank == root ? output : null, count, type, op, root);
        case ALL_TO_ALL -> CollectiveCall.allToAll(input, output, count, type);
        case ALL_TO_ALL_V ->
            CollectiveCall.allToAllv(
                input, longs(sends(rank)), output, longs(receives(rank)), type);
        case GATHER ->
            CollectiveCall.gather(input, rank == root ? output : null, count, type, root);
        case SCATTER ->
            CollectiveCall.scatter(rank == root ? input : null, output, count, type, root);
        case SEND_RECEIVE ->
            CollectiveCall.sendReceive(input, count, to, output, count, from, type);
        case FUSED_ALL_REDUCE -> throw new IllegalArgumentException("has rows");
        case BARRIER -> CollectiveCall.barrier();
        case DISPATCH, COMBINE -> throw new IllegalArgumentException("has tests of its own");
      };
    }

    /** Checks all bytes of the rank's memory, guards included. */
    void verify() {
      byte[] expected = new byte[(int) memory.size()];
      Arrays.fill(expected, UNTOUCHED);
      System.arraycopy(input(rank), 0, expected, (int) inputAt, inputBytes);
      if (outputBytes > 0) {
        System.arraycopy(output(rank), 0, expected, (int) outputAt, outputBytes);
      }
      byte[] got = new byte[expected.length];
      memory.download(0, got);
      dropSignsOfZeros(got);
      int mismatch = Arrays.mismatch(got, expected);
      assertThat(mismatch)
          .as(
              "%s on rank %d of %d, in place: %s; input at %d, output at %d of %d bytes",
              call, rank, nRanks, inPlace, inputAt, outputAt, outputBytes)
          .isEqualTo(-1);
    }
  }

  private static long roundUp(long bytes) {
    return bytes + 7 & -8;
  }

  Run on(int rank, DeviceBuffer memory) {
    return new Run(rank, memory);
  }

  private int[] sends(int rank) {
    return counts[rank];
  }

  private int[] receives(int rank) {
    int[] from = new int[nRanks];
    for (int r = 0; r < nRanks; r++) {
      from[r] = counts[r][rank];
    }
    return from;
  }

  private static long[] longs(int[] counts) {
    return Arrays.stream(counts).asLongStream().toArray();
  }

  private int inputBytes(int rank) {
    int one = count * type.size();
    return switch (collective) {
      case ALL_REDUCE, ALL_GATHER, REDUCE, GATHER, SEND_RECEIVE -> one;
      case BROADCAST -> rank == root ? one : 0;
      case SCATTER -> rank == root ? one * nRanks : 0;
      case REDUCE_SCATTER, ALL_TO_ALL -> one * nRanks;
      case ALL_TO_ALL_V -> Arrays.stream(sends(rank)).sum() * type.size();
      case FUSED_ALL_REDUCE -> throw new IllegalArgumentException("has rows");
      case BARRIER, DISPATCH, COMBINE -> 0;
    };
  }

  private int outputBytes(int rank) {
    int one = count * type.size();
    return switch (collective) {
      case ALL_REDUCE, BROADCAST, REDUCE_SCATTER, SCATTER, SEND_RECEIVE -> one;
      case REDUCE -> rank == root ? one : 0;
      case GATHER -> rank == root ? one * nRanks : 0;
      case ALL_GATHER, ALL_TO_ALL -> one * nRanks;
      case ALL_TO_ALL_V -> Arrays.stream(receives(rank)).sum() * type.size();
      case FUSED_ALL_REDUCE -> throw new IllegalArgumentException("has rows");
      case BARRIER, DISPATCH, COMBINE -> 0;
    };
  }

  private byte[] input(int rank) {
    byte[] bytes = new byte[inputBytes(rank)];
    if (collective.reduces()) {
      ByteBuffer elements = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
      for (int i = 0; i < bytes.length / type.size(); i++) {
        ExactElements.put(elements, type, i, ExactElements.input(type, op, rank, nRanks, i + seed));
      }
    } else {
      new Random(seed * 31L + rank).nextBytes(bytes);
    }
    return bytes;
  }

  private byte[] output(int rank) {
    int one = count * type.size();
    return switch (collective) {
      case ALL_REDUCE, REDUCE -> combined(0, count);
      case REDUCE_SCATTER -> combined(rank * count, count);
      case BROADCAST -> input(root);
      case SCATTER -> Arrays.copyOfRange(input(root), rank * one, (rank + 1) * one);
      case SEND_RECEIVE -> input((rank + nRanks - shift) % nRanks);
      case ALL_GATHER, GATHER, ALL_TO_ALL -> {
        byte[] all = new byte[nRanks * one];
        for (int r = 0; r < nRanks; r++) {
          int from = collective == Collective.ALL_TO_ALL ? rank * one : 0;
          System.arraycopy(input(r), from, all, r * one, one);
        }
        yield all;
      }
      case ALL_TO_ALL_V -> {
        byte[] all = new byte[outputBytes(rank)];
        int at = 0;
        for (int r = 0; r < nRanks; r++) {
          int from = Arrays.stream(sends(r), 0, rank).sum() * type.size();
          int length = counts[r][rank] * type.size();
          System.arraycopy(input(r), from, all, at, length);
          at += length;
        }
        yield all;
      }
      case FUSED_ALL_REDUCE -> throw new IllegalArgumentException("has rows");
      case BARRIER, DISPATCH, COMBINE -> new byte[0];
    };
  }

  private byte[] combined(int from, int length) {
    byte[] bytes = new byte[length * type.size()];
    ByteBuffer elements = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
    for (int i = 0; i < length; i++) {
      long value = ExactElements.expected(type, op, nRanks, from + i + seed).longValueExact();
      ExactElements.put(elements, type, i, value);
    }
    return bytes;
  }
}

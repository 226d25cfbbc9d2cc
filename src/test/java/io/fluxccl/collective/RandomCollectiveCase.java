// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.testing.Bytes;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.stream.IntStream;

/**
 * One random collective whose result every rank can compute. All ranks draw it from an equal seed.
 */
public final class RandomCollectiveCase {
  private static final int GUARD = 64;
  private static final byte UNTOUCHED = 0x5a;

  private final Collective collective;
  private final int nRanks;
  private final int[][] counts; // of all-to-all-v: from, to
  private final int seed;
  private int root;
  private int shift; // of a send-receive: to rank + shift
  private int offset;
  private int outputShift;
  private DataType type;
  private ReduceOp op;
  private int count;
  private boolean inPlace;
  private boolean hasAnyBits;

  /** Draws all but the collective. */
  public RandomCollectiveCase(Random random, int nRanks, Collective collective, int maxBytes) {
    this.nRanks = nRanks;
    this.collective = collective;
    this.type = DataType.values()[random.nextInt(DataType.values().length)];
    this.op = ReduceOp.values()[random.nextInt(ReduceOp.values().length)];
    this.count = draw(random, maxBytes / type.size());
    this.root = random.nextInt(nRanks);
    this.inPlace = random.nextBoolean();
    this.counts = new int[nRanks][nRanks];
    for (int[] row : counts) {
      Arrays.setAll(row, i -> random.nextInt(3) == 0 ? 0 : draw(random, maxBytes / type.size()));
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

  public static RandomCollectiveCase draw(Random random, int nRanks, int maxBytes) {
    List<Collective> all = Collective.plain();
    return new RandomCollectiveCase(random, nRanks, all.get(random.nextInt(all.size())), maxBytes);
  }

  /** Sets what a test does not leave to chance; messages of the ranks differ by a few elements. */
  public RandomCollectiveCase with(DataType wantedType, int wantedCount, boolean wantedInPlace) {
    type = wantedType;
    op = ReduceOp.SUM;
    count = wantedCount;
    inPlace = wantedInPlace;
    shift = 1 % nRanks;
    for (int from = 0; from < nRanks; from++) {
      int sent = Math.max(0, count - from);
      boolean isUneven = collective == Collective.ALL_TO_ALL_V;
      Arrays.setAll(counts[from], to -> isUneven && (to + sent) % 3 == 0 ? 0 : sent);
    }
    return this;
  }

  /** Sets the operation, which is SUM otherwise, and the root. */
  public RandomCollectiveCase with(ReduceOp wantedOp, int wantedRoot) {
    op = wantedOp;
    root = wantedRoot;
    return this;
  }

  /** Reduces any bits, as {@code HostReduction} does, instead of numbers with exact results. */
  public RandomCollectiveCase ofAnyBits(ReduceOp wantedOp) {
    op = wantedOp;
    hasAnyBits = true;
    return this;
  }

  /** Moves the input and an output that is not in place, by bytes that the type allows. */
  public RandomCollectiveCase at(int inputOffset, int outputOffset) {
    offset = inputOffset;
    outputShift = outputOffset;
    return this;
  }

  /** Returns the bytes of memory that each rank needs for this case. */
  public long memory() {
    long bytes = offset + outputShift + 4L * GUARD;
    for (int rank = 0; rank < nRanks; rank++) {
      CollectiveCall call = call(rank, null, null);
      long most = Math.max(call.inputBytes(rank, nRanks), call.outputBytes(rank, nRanks));
      bytes = Math.max(bytes, offset + outputShift + 4L * GUARD + 2 * most);
    }
    return bytes;
  }

  /** Returns the bytes of memory that a rank needs for a case of that size. */
  public static long memory(int nRanks, int maxBytes) {
    return 2L * (maxBytes + 8) * nRanks + 4 * GUARD + 8 * 20 + 64;
  }

  /** Fills a rank's memory and binds the case to it. */
  public Run on(int rank, DeviceBuffer memory) {
    return new Run(rank, memory);
  }

  /** A case bound to a rank's memory. */
  public final class Run {
    public final CollectiveCall call;
    private final int rank;
    private final DeviceBuffer memory;
    private final byte[] input;
    private final byte[] output;
    private final int inputAt;
    private final int outputAt;

    private Run(int rank, DeviceBuffer memory) {
      this.rank = rank;
      this.memory = memory;
      this.input = input(rank);
      this.output = output(rank);
      int first = offset + GUARD;
      int ofRank = first + rank * count * type.size();
      boolean isRoot = rank == root;
      int second = 0;
      for (int each = 0; each < nRanks; each++) {
        second = Math.max(second, first + GUARD + outputShift + (inputBytes(each) + 7 & -8));
      }
      inputAt =
          switch (inPlace ? collective : Collective.BARRIER) {
            case ALL_GATHER -> ofRank;
            case GATHER -> isRoot ? ofRank : first;
            default -> first;
          };
      outputAt =
          switch (inPlace ? collective : Collective.BARRIER) {
            case REDUCE_SCATTER -> ofRank;
            case SCATTER -> isRoot ? ofRank : second;
            case GATHER -> isRoot ? first : second;
            case ALL_REDUCE, ALL_GATHER, REDUCE, BROADCAST, ALL_TO_ALL -> first;
            default -> second;
          };
      memory.upload(0, image(new byte[0]));
      DeviceBuffer in = memory.slice(inputAt, Math.max(1, input.length));
      DeviceBuffer out = memory.slice(outputAt, Math.max(1, output.length));
      DeviceBuffer larger = input.length > output.length ? in : out;
      // In place, every other case has one object for both.
      boolean isOne = inputAt == outputAt && seed % 2 == 0;
      call = call(rank, isOne ? larger : in, isOne ? larger : out);
    }

    /** Returns the bytes of all the memory, guards included, with an input and an output. */
    private byte[] image(byte[] written) {
      byte[] bytes = new byte[(int) memory.size()];
      Arrays.fill(bytes, UNTOUCHED);
      System.arraycopy(input, 0, bytes, inputAt, input.length);
      System.arraycopy(written, 0, bytes, outputAt, written.length);
      return bytes;
    }

    /** Products of zero and negative values are -0, which exact arithmetic does not know. */
    private void dropSignsOfZeros(byte[] got) {
      int size = type.size();
      for (int at = outputAt;
          collective.reduces() && type.isFloatingPoint() && at < outputAt + output.length;
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

    /** Checks all bytes of the rank's memory, guards included. */
    public void verify() {
      byte[] got = Bytes.of(memory);
      if (hasAnyBits) {
        ReduceTestData.unifyNans(type, got, outputAt, output.length);
        ReduceTestData.unifyNans(type, output, 0, output.length);
      } else {
        dropSignsOfZeros(got);
      }
      assertThat(Arrays.mismatch(got, image(output)))
          .as(
              "%s on rank %d of %d, in place: %s; input at %d, output at %d of %d bytes",
              call, rank, nRanks, inPlace, inputAt, outputAt, output.length)
          .isEqualTo(-1);
    }

    /** Checks a chunk of each share of the output. */
    public void verify(Chunk chunk) {
      byte[] got = new byte[(int) chunk.count() * type.size()];
      int begin = (int) chunk.offset() * type.size();
      for (int at = begin; at < output.length; at += count * type.size()) {
        memory.download(outputAt + at, got);
        assertThat(Arrays.mismatch(got, 0, got.length, output, at, at + got.length))
            .as("%s on rank %d: %s, output at byte %d", call, rank, chunk, at)
            .isEqualTo(-1);
      }
    }
  }

  private CollectiveCall call(int rank, DeviceBuffer input, DeviceBuffer output) {
    int to = (rank + shift) % nRanks;
    int from = (rank + nRanks - shift) % nRanks;
    boolean isRoot = rank == root;
    CallShape shape = new CallShape(collective, count, type, op, root);
    return switch (collective) {
      case BROADCAST -> shape.on(isRoot || inPlace ? input : null, output);
      case REDUCE, GATHER -> shape.on(input, isRoot ? output : null);
      case SCATTER -> shape.on(isRoot ? input : null, output);
      case ALL_TO_ALL_V ->
          CollectiveCall.allToAllv(input, longs(counts[rank]), output, received(rank), type);
      case SEND_RECEIVE ->
          CollectiveCall.sendReceive(
              input, counts[rank][to], to, output, counts[from][rank], from, type);
      default -> shape.on(input, output);
    };
  }

  private static long[] longs(int[] counts) {
    return Arrays.stream(counts).asLongStream().toArray();
  }

  private long[] received(int rank) {
    return Arrays.stream(counts).mapToLong(row -> row[rank]).toArray();
  }

  private int inputBytes(int rank) {
    return (int) call(rank, null, null).inputBytes(rank, nRanks);
  }

  private byte[] input(int rank) {
    byte[] bytes = new byte[inputBytes(rank)];
    if (hasAnyBits) {
      return ReduceTestData.input(type, rank, seed, bytes.length / type.size());
    }
    if (!collective.reduces()) {
      new Random(seed * 31L + rank).nextBytes(bytes);
      return bytes;
    }
    ByteBuffer elements = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
    for (int i = 0; i < bytes.length / type.size(); i++) {
      ExactElements.put(elements, type, i, ExactElements.input(type, op, rank, nRanks, i + seed));
    }
    return bytes;
  }

  private byte[] output(int rank) {
    int one = count * type.size();
    return switch (collective) {
      case ALL_REDUCE -> combined(0);
      case REDUCE -> rank == root ? combined(0) : new byte[0];
      case REDUCE_SCATTER -> combined(rank * count);
      case BROADCAST -> input(root);
      case SCATTER -> Arrays.copyOfRange(input(root), rank * one, (rank + 1) * one);
      case SEND_RECEIVE -> input((rank + nRanks - shift) % nRanks);
      case ALL_GATHER -> parts(one, 0);
      case GATHER -> rank == root ? parts(one, 0) : new byte[0];
      case ALL_TO_ALL -> parts(one, rank * one);
      case ALL_TO_ALL_V -> {
        ByteBuffer all =
            ByteBuffer.allocate((int) Arrays.stream(received(rank)).sum() * type.size());
        for (int from = 0; from < nRanks; from++) {
          int at = Arrays.stream(counts[from], 0, rank).sum() * type.size();
          all.put(input(from), at, counts[from][rank] * type.size());
        }
        yield all.array();
      }
      default -> new byte[0];
    };
  }

  /** Returns a part of each rank's input, one after the other. */
  private byte[] parts(int length, int from) {
    ByteBuffer all = ByteBuffer.allocate(nRanks * length);
    for (int rank = 0; rank < nRanks; rank++) {
      all.put(input(rank), from, length);
    }
    return all.array();
  }

  private byte[] combined(int from) {
    if (hasAnyBits) {
      List<byte[]> inputs = IntStream.range(0, nRanks).mapToObj(this::input).toList();
      byte[] all = ReduceTestData.reduced(type, op, inputs);
      return Arrays.copyOfRange(all, from * type.size(), (from + count) * type.size());
    }
    byte[] bytes = new byte[count * type.size()];
    ByteBuffer elements = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
    for (int i = 0; i < count; i++) {
      long value = ExactElements.expected(type, op, nRanks, from + i + seed);
      ExactElements.put(elements, type, i, value);
    }
    return bytes;
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static io.fluxccl.DataType.BFLOAT16;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.FloatView;
import io.fluxccl.device.HalfFloat;
import io.fluxccl.device.IntView;
import io.fluxccl.testing.Bytes;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.SplittableRandom;
import java.util.stream.IntStream;

/** A rank's buffers of a dispatch and a combine, and the content that each rank must receive. */
final class ExpertTrial implements AutoCloseable {
  private static final byte POISON = (byte) 0xdb;
  private static final int GUARD = 64;

  /** How tokens choose their experts. */
  enum Routing {
    RANDOM,
    ALL_TO_ONE,
    EMPTY_RANKS,
    NONE
  }

  /** A token of a rank. */
  private record Token(int rank, int number) {}

  private final ExpertShape shape;
  private final int rank;
  private final int nRanks;
  private final int each;
  private final int pairs;
  private final ExpertBatch batch;
  private final List<DeviceBuffer> owned = new ArrayList<>();
  private final DeviceBuffer tokens;
  private final DeviceBuffer scales;
  private final DeviceBuffer received;
  private final DeviceBuffer receivedScales;
  private final DeviceBuffer given;
  private final DeviceBuffer rows;
  private final DeviceBuffer combined;
  private Routing routing;
  private int seed;
  private int[][][] ids;

  ExpertTrial(Device device, ExpertShape shape, int rank, int nRanks) {
    this.shape = shape;
    this.rank = rank;
    this.nRanks = nRanks;
    this.each = shape.experts() / nRanks;
    this.pairs = shape.capacity() * shape.topK();
    this.batch = ExpertBatch.allocate(device, shape, nRanks);
    this.tokens = allocate(device, (long) shape.tokens() * shape.tokenBytes());
    this.scales = scales(device, shape.tokens());
    this.received = allocate(device, (long) shape.capacity() * shape.tokenBytes() + GUARD);
    this.receivedScales = scales(device, shape.capacity());
    this.given = allocate(device, (long) pairs * shape.combinedBytes());
    this.rows = allocate(device, (long) pairs * Integer.BYTES);
    this.combined = allocate(device, (long) shape.tokens() * shape.combinedBytes() + GUARD);
  }

  private DeviceBuffer allocate(Device device, long bytes) {
    DeviceBuffer buffer = device.allocate(bytes);
    owned.add(buffer);
    return buffer;
  }

  private DeviceBuffer scales(Device device, int count) {
    return shape.scaleBytes() == 0 ? null : allocate(device, (long) count * shape.scaleBytes());
  }

  Dispatch dispatch() {
    return new Dispatch(batch, tokens, scales, received, receivedScales);
  }

  /** Returns a combine, of the expert's outputs by row if so wanted, else summed before. */
  Combine combine(boolean ofRows) {
    return new Combine(batch, given, ofRows ? rows : null, combined);
  }

  /** Fills all buffers. */
  void upload(Routing newRouting, int newSeed, boolean ofRows) {
    routing = newRouting;
    seed = newSeed;
    ids = new int[nRanks][shape.tokens()][];
    for (int of = 0; of < nRanks; of++) {
      for (int token = 0; token < shape.tokens(); token++) {
        ids[of][token] = makeIds(of, token);
      }
    }
    IntView.of(batch.ids()).put(Arrays.stream(ids[rank]).flatMapToInt(Arrays::stream).toArray());
    float[] weights = new float[shape.tokens() * shape.topK()];
    for (int i = 0; i < weights.length; i++) {
      weights[i] = weight(rank, i / shape.topK(), i % shape.topK());
    }
    FloatView.of(batch.weights()).put(weights);
    tokens.upload(0, allTokens(rank));
    if (scales != null) {
      scales.upload(0, allScales(rank));
    }
    poison(received);
    poison(combined);
    poison(batch.sources());
    FloatView values = FloatView.of(given, BFLOAT16);
    for (int row = 0; row < pairs; row++) {
      values.slice((long) row * shape.hidden(), shape.hidden()).put(given(rank, row));
    }
    if (ofRows) {
      IntView.of(rows).put(IntStream.range(0, pairs).map(i -> rowOf(rank, i)).toArray());
    }
  }

  void writeId(int token, int k, int id) {
    IntView.of(batch.ids()).put((long) token * shape.topK() + k, id);
  }

  void writeRows(int row) {
    IntView.of(rows).put(IntStream.range(0, pairs).map(i -> row).toArray());
  }

  /** Checks the received tokens, their scales and routings, and the bytes after them. */
  void checkDispatch() {
    List<Token> places = received(rank);
    int[] perRank = new int[nRanks];
    int[] perExpert = new int[each];
    int[] sources = new int[places.size()];
    int[] localIds = new int[places.size() * shape.topK()];
    float[] weights = new float[localIds.length];
    ByteBuffer values = ByteBuffer.allocate(places.size() * shape.tokenBytes());
    ByteBuffer factors = ByteBuffer.allocate(places.size() * shape.scaleBytes());
    for (int place = 0; place < sources.length; place++) {
      int from = places.get(place).rank();
      int number = places.get(place).number();
      perRank[from]++;
      sources[place] = from * shape.tokens() + number;
      values.put(allTokens(from), number * shape.tokenBytes(), shape.tokenBytes());
      factors.put(allScales(from), number * shape.scaleBytes(), shape.scaleBytes());
      for (int k = 0; k < shape.topK(); k++) {
        int id = ids[from][number][k];
        boolean isHere = id >= 0 && id / each == rank;
        localIds[place * shape.topK() + k] = isHere ? id % each : -1;
        weights[place * shape.topK() + k] = isHere ? weight(from, number, k) : 0;
        perExpert[Math.max(0, id) % each] += isHere ? 1 : 0;
      }
    }
    assertThat(ints(batch.perRank(), nRanks)).as("tokens by rank").isEqualTo(perRank);
    assertThat(ints(batch.perExpert(), each)).as("tokens by expert").isEqualTo(perExpert);
    assertThat(ints(batch.sources(), sources.length)).as("sources").isEqualTo(sources);
    assertThat(ints(batch.receivedIds(), localIds.length)).as("experts").isEqualTo(localIds);
    float[] got = FloatView.of(batch.receivedWeights()).toArray();
    assertThat(Arrays.copyOf(got, weights.length)).as("weights").isEqualTo(weights);
    checkBytes(received, values.array());
    if (scales != null) {
      assertThat(Bytes.of(receivedScales, 0, factors.capacity())).isEqualTo(factors.array());
    }
  }

  /** Checks the first bytes of a buffer, and that the others were not written. */
  private static void checkBytes(DeviceBuffer buffer, byte[] first) {
    byte[] expected = Arrays.copyOf(first, (int) buffer.size());
    Arrays.fill(expected, first.length, expected.length, POISON);
    int wrong = Arrays.mismatch(Bytes.of(buffer), expected);
    assertThat(wrong).as("first wrong byte; %s are expected", first.length).isEqualTo(-1);
  }

  /** Checks the combined tokens and returns their bytes. */
  byte[] checkCombine(boolean ofRows) {
    int hidden = shape.hidden();
    FloatView found = FloatView.of(combined, BFLOAT16);
    for (int token = 0; token < shape.tokens(); token++) {
      float[] sums = new float[hidden];
      for (int to = 0; to < nRanks; to++) {
        int place = received(to).indexOf(new Token(rank, token));
        if (place >= 0) {
          add(sums, ofRows ? weighted(to, place, token) : given(to, place), 1);
        }
      }
      assertThat(found.slice((long) token * hidden, hidden).toArray())
          .as("token %d of rank %d", token, rank)
          .isEqualTo(rounded(sums));
    }
    byte[] values = Bytes.of(combined, 0, shape.tokens() * shape.combinedBytes());
    checkBytes(combined, values);
    return values;
  }

  private float[] weighted(int at, int place, int token) {
    float[] sums = new float[shape.hidden()];
    for (int k = 0; k < shape.topK(); k++) {
      int id = ids[rank][token][k];
      int row = rowOf(at, place * shape.topK() + k);
      if (id >= 0 && id / each == at && row >= 0) {
        add(sums, given(at, row), weight(rank, token, k));
      }
    }
    return rounded(sums);
  }

  private static void add(float[] sums, float[] values, float weight) {
    for (int i = 0; i < sums.length; i++) {
      sums[i] += weight * values[i];
    }
  }

  private static float[] rounded(float[] sums) {
    for (int i = 0; i < sums.length; i++) {
      sums[i] = HalfFloat.fromBfloat16(HalfFloat.toBfloat16(sums[i]));
    }
    return sums;
  }

  /** Returns the tokens that a rank receives, in their order. */
  private List<Token> received(int at) {
    List<Token> places = new ArrayList<>();
    for (int from = 0; from < nRanks; from++) {
      for (int token = 0; token < shape.tokens(); token++) {
        if (Arrays.stream(ids[from][token]).anyMatch(id -> id >= 0 && id / each == at)) {
          places.add(new Token(from, token));
        }
      }
    }
    return places;
  }

  private int[] makeIds(int of, int token) {
    Random random = new Random(seed * 7919L + of * 1031L + token);
    int[] made = random.ints(0, shape.experts()).distinct().limit(shape.topK()).toArray();
    for (int k = 0; k < made.length; k++) {
      int id = made[k];
      made[k] =
          switch (routing) {
            case RANDOM -> random.nextInt(4) == 0 || token % 5 == 3 ? -1 : id;
            case ALL_TO_ONE -> k < each ? (nRanks - 1) * each + k : -1;
            case EMPTY_RANKS -> of % 2 == 1 || id / each % 2 == 1 ? -1 : id;
            case NONE -> -1;
          };
    }
    return made;
  }

  private float weight(int of, int token, int k) {
    return 0.1f + (of * 31 + token * 7 + k * 3 + seed) % 13 / 17f;
  }

  private int rowOf(int at, int pair) {
    return (at + pair + seed) % 11 == 5 ? -1 : (int) ((pair * 5L + at) % pairs);
  }

  private float[] given(int at, int row) {
    SplittableRandom random = new SplittableRandom(at * 65_537L + row);
    float[] values = new float[shape.hidden()];
    for (int i = 0; i < values.length; i++) {
      values[i] = random.nextFloat() * 4 - 2;
    }
    return rounded(values);
  }

  private byte[] allTokens(int of) {
    return Bytes.random(seed * 53L + of, shape.tokens() * shape.tokenBytes());
  }

  private byte[] allScales(int of) {
    return Bytes.random(seed * 59L + of + 1000, shape.tokens() * shape.scaleBytes());
  }

  private static void poison(DeviceBuffer buffer) {
    byte[] poison = new byte[(int) buffer.size()];
    Arrays.fill(poison, POISON);
    buffer.upload(0, poison);
  }

  private static int[] ints(DeviceBuffer buffer, int count) {
    return Arrays.copyOf(IntView.of(buffer).toArray(), count);
  }

  @Override
  public void close() {
    owned.forEach(DeviceBuffer::close);
    batch.close();
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.SplittableRandom;
import java.util.stream.IntStream;

/** A mixture of experts as a plain computation, and one rank's buffers of it. */
final class ExpertTrial implements AutoCloseable {
  private static final byte POISON = (byte) 0xdb;
  private static final int GUARD = 64;

  /** Ways to assign experts to tokens. */
  enum Routing {
    /** Random experts; some entries have none. */
    RANDOM,
    /** All experts are on the last rank. */
    ALL_TO_ONE,
    /** Odd ranks have no tokens, and their experts receive none. */
    EMPTY_RANKS,
    /** No token has an expert. */
    NONE
  }

  private final ExpertShape shape;
  private final int rank;
  private final int nRanks;
  private final int each;
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

  /** The experts of each rank's tokens. */
  private int[][][] ids;

  ExpertTrial(Device device, ExpertShape shape, int rank, int nRanks) {
    this.shape = shape;
    this.rank = rank;
    this.nRanks = nRanks;
    this.each = shape.experts() / nRanks;
    this.batch = ExpertBatch.allocate(device, shape, nRanks);
    this.tokens = allocate(device, (long) shape.tokens() * shape.tokenBytes());
    this.scales = scales(device, shape.tokens());
    this.received = allocate(device, (long) shape.capacity() * shape.tokenBytes() + GUARD);
    this.receivedScales = scales(device, shape.capacity());
    this.given = allocate(device, givenRows() * shape.combinedBytes());
    this.rows = allocate(device, (long) shape.capacity() * shape.topK() * Integer.BYTES);
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

  private long givenRows() {
    return (long) shape.capacity() * shape.topK();
  }

  ExpertBatch batch() {
    return batch;
  }

  Dispatch dispatch() {
    return new Dispatch(batch, tokens, scales, received, receivedScales);
  }

  Combine combine(boolean ofRows) {
    return new Combine(batch, given, ofRows ? rows : null, combined);
  }

  /** Writes all inputs, and fills the outputs with poison. */
  void upload(Routing newRouting, int newSeed, boolean ofRows) {
    routing = newRouting;
    seed = newSeed;
    ids = new int[nRanks][shape.tokens()][];
    for (int of = 0; of < nRanks; of++) {
      for (int token = 0; token < shape.tokens(); token++) {
        ids[of][token] = makeIds(of, token);
      }
    }
    ByteBuffer allIds = words(shape.tokens() * shape.topK());
    ByteBuffer weights = words(shape.tokens() * shape.topK());
    for (int token = 0; token < shape.tokens(); token++) {
      for (int k = 0; k < shape.topK(); k++) {
        allIds.putInt(ids[rank][token][k]);
        weights.putFloat(weight(rank, token, k));
      }
    }
    batch.ids().upload(0, allIds.flip());
    batch.weights().upload(0, weights.flip());
    tokens.upload(0, allTokens(rank));
    if (scales != null) {
      scales.upload(0, allScales(rank));
    }
    poison(received);
    poison(combined);
    poison(batch.sources());
    ByteBuffer values = bytes((int) (givenRows() * shape.combinedBytes()));
    for (int row = 0; row < givenRows(); row++) {
      values.put(given(rank, row));
    }
    given.upload(0, values.flip());
    if (ofRows) {
      ByteBuffer all = words(shape.capacity() * shape.topK());
      for (int i = 0; i < shape.capacity() * shape.topK(); i++) {
        all.putInt(rowOf(rank, i));
      }
      rows.upload(0, all.flip());
    }
  }

  void writeId(int token, int k, int id) {
    batch
        .ids()
        .upload((long) (token * shape.topK() + k) * Integer.BYTES, words(1).putInt(id).flip());
  }

  void writeRows(int row) {
    ByteBuffer all = words(shape.capacity() * shape.topK());
    while (all.hasRemaining()) {
      all.putInt(row);
    }
    rows.upload(0, all.flip());
  }

  /** Checks all outputs of a dispatch. */
  void checkDispatch() {
    List<int[]> places = received(rank);
    assertThat(ints(batch.perRank(), nRanks))
        .as("tokens by rank")
        .containsExactly(
            IntStream.range(0, nRanks)
                .map(from -> (int) places.stream().filter(p -> p[0] == from).count())
                .toArray());
    int[] perExpert = new int[each];
    int bytes = shape.tokenBytes();
    byte[] values = download(received, (shape.capacity() * bytes) + GUARD);
    List<ByteBuffer> sent = IntStream.range(0, nRanks).mapToObj(this::allTokens).toList();
    for (int place = 0; place < places.size(); place++) {
      int from = places.get(place)[0];
      int token = places.get(place)[1];
      String what = "rank %d's token %d on rank %d".formatted(from, token, rank);
      assertThat(ints(batch.sources(), place + 1)[place])
          .as(what)
          .isEqualTo(from * shape.tokens() + token);
      assertThat(Arrays.copyOfRange(values, place * bytes, (place + 1) * bytes))
          .as(what)
          .isEqualTo(slice(sent.get(from), token, bytes));
      checkRouting(what, place, from, token, perExpert);
    }
    assertThat(ints(batch.perExpert(), each)).as("tokens by expert").containsExactly(perExpert);
    byte[] rest = Arrays.copyOfRange(values, places.size() * bytes, values.length);
    byte[] poison = new byte[rest.length];
    Arrays.fill(poison, POISON);
    assertThat(rest).as("behind the received tokens").isEqualTo(poison);
  }

  private void checkRouting(String what, int place, int from, int token, int[] perExpert) {
    if (scales != null) {
      assertThat(
              slice(
                  wrap(download(receivedScales, (place + 1) * shape.scaleBytes())),
                  place,
                  shape.scaleBytes()))
          .as(what)
          .isEqualTo(slice(allScales(from), token, shape.scaleBytes()));
    }
    int[] receivedIds = ints(batch.receivedIds(), (place + 1) * shape.topK());
    int[] weights = ints(batch.receivedWeights(), (place + 1) * shape.topK());
    for (int k = 0; k < shape.topK(); k++) {
      int id = ids[from][token][k];
      boolean isHere = id >= 0 && id / each == rank;
      assertThat(receivedIds[place * shape.topK() + k]).as(what).isEqualTo(isHere ? id % each : -1);
      assertThat(Float.intBitsToFloat(weights[place * shape.topK() + k]))
          .as(what)
          .isEqualTo(isHere ? weight(from, token, k) : 0);
      if (isHere) {
        perExpert[id % each]++;
      }
    }
  }

  /** Checks the bits of the output of a combine, and returns them. */
  byte[] checkCombine(boolean ofRows) {
    int bytes = shape.combinedBytes();
    byte[] values = download(combined, shape.tokens() * bytes + GUARD);
    for (int token = 0; token < shape.tokens(); token++) {
      float[] sums = new float[shape.hidden()];
      for (int to = 0; to < nRanks; to++) {
        int place = placeOf(rank, token, to);
        if (place >= 0) {
          add(sums, ofRows ? weighted(to, place, token) : given(to, place), 1);
        }
      }
      assertThat(Arrays.copyOfRange(values, token * bytes, (token + 1) * bytes))
          .as("token %d of rank %d", token, rank)
          .isEqualTo(rounded(sums));
    }
    for (int i = shape.tokens() * bytes; i < values.length; i++) {
      assertThat(values[i]).isEqualTo(POISON);
    }
    return values;
  }

  private byte[] weighted(int at, int place, int token) {
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

  private static void add(float[] sums, byte[] values, float weight) {
    ByteBuffer from = wrap(values);
    for (int i = 0; i < sums.length; i++) {
      sums[i] += weight * Float.intBitsToFloat(from.getShort(2 * i) << 16);
    }
  }

  private static byte[] rounded(float[] sums) {
    ByteBuffer to = bytes(sums.length * 2);
    for (float sum : sums) {
      int bits = Float.floatToRawIntBits(sum);
      to.putShort((short) (bits + 0x7fff + (bits >>> 16 & 1) >>> 16));
    }
    byte[] result = new byte[sums.length * 2];
    to.flip().get(result);
    return result;
  }

  /** Source rank and token of each row that a rank receives. */
  private List<int[]> received(int at) {
    List<int[]> places = new ArrayList<>();
    for (int from = 0; from < nRanks; from++) {
      for (int token = 0; token < shape.tokens(); token++) {
        if (Arrays.stream(ids[from][token]).anyMatch(id -> id >= 0 && id / each == at)) {
          places.add(new int[] {from, token});
        }
      }
    }
    return places;
  }

  private int placeOf(int from, int token, int at) {
    List<int[]> places = received(at);
    for (int place = 0; place < places.size(); place++) {
      if (places.get(place)[0] == from && places.get(place)[1] == token) {
        return place;
      }
    }
    return -1;
  }

  private int[] makeIds(int of, int token) {
    Random random = new Random(seed * 7919L + of * 1031L + token);
    int[] made = random.ints(0, shape.experts()).distinct().limit(shape.topK()).toArray();
    switch (routing) {
      case RANDOM -> {
        for (int k = 0; k < made.length; k++) {
          made[k] = random.nextInt(4) == 0 || token % 5 == 3 ? -1 : made[k];
        }
      }
      case ALL_TO_ONE -> {
        for (int k = 0; k < made.length; k++) {
          made[k] = k < each ? (nRanks - 1) * each + k : -1;
        }
      }
      case EMPTY_RANKS -> {
        for (int k = 0; k < made.length; k++) {
          made[k] = of % 2 == 1 || made[k] / each % 2 == 1 ? -1 : made[k];
        }
      }
      default -> Arrays.fill(made, -1);
    }
    return made;
  }

  private float weight(int of, int token, int k) {
    return 0.1f + (of * 31 + token * 7 + k * 3 + seed) % 13 / 17f;
  }

  private int rowOf(int at, int pair) {
    return (at + pair + seed) % 11 == 5 ? -1 : (int) ((pair * 5L + at) % givenRows());
  }

  private byte[] given(int at, int row) {
    SplittableRandom random = new SplittableRandom(at * 65_537L + row);
    ByteBuffer values = bytes(shape.combinedBytes());
    for (int i = 0; i < shape.hidden(); i++) {
      values.putShort((short) (Float.floatToRawIntBits(random.nextFloat() * 4 - 2) >>> 16));
    }
    byte[] result = new byte[shape.combinedBytes()];
    values.flip().get(result);
    return result;
  }

  private ByteBuffer allTokens(int of) {
    return random(seed * 53L + of, shape.tokens() * shape.tokenBytes());
  }

  private ByteBuffer allScales(int of) {
    return random(seed * 59L + of + 1000, shape.tokens() * shape.scaleBytes());
  }

  private static ByteBuffer random(long seed, int length) {
    byte[] values = new byte[length];
    new SplittableRandom(seed).nextBytes(values);
    return bytes(length).put(values).flip();
  }

  private static byte[] slice(ByteBuffer all, int index, int length) {
    byte[] slice = new byte[length];
    all.get(index * length, slice);
    return slice;
  }

  private static void poison(DeviceBuffer buffer) {
    ByteBuffer poison = bytes((int) buffer.size());
    while (poison.hasRemaining()) {
      poison.put(POISON);
    }
    buffer.upload(0, poison.flip());
  }

  private static byte[] download(DeviceBuffer buffer, int length) {
    ByteBuffer target = bytes(length);
    buffer.download(0, target);
    byte[] result = new byte[length];
    target.flip().get(result);
    return result;
  }

  private static int[] ints(DeviceBuffer buffer, int count) {
    int[] values = new int[count];
    wrap(download(buffer, count * Integer.BYTES)).asIntBuffer().get(values);
    return values;
  }

  private static ByteBuffer wrap(byte[] values) {
    return ByteBuffer.wrap(values).order(ByteOrder.LITTLE_ENDIAN);
  }

  private static ByteBuffer words(int count) {
    return bytes(count * Integer.BYTES);
  }

  private static ByteBuffer bytes(int length) {
    return ByteBuffer.allocateDirect(length).order(ByteOrder.LITTLE_ENDIAN);
  }

  @Override
  public void close() {
    owned.forEach(DeviceBuffer::close);
    batch.close();
  }
}

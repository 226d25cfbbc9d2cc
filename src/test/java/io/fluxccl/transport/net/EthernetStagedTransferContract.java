// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.testing.Rounds;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.Contents;
import io.fluxccl.transport.RegisteredMemory;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Function;
import java.util.function.Predicate;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Transfers of staged memory arrive complete and in order; run on the host and on GPUs. */
@Timeout(120)
abstract class EthernetStagedTransferContract {
  private final Function<Predicate<DeviceBuffer>, NetRanks> opener;

  /** Buffers that are not staged though the device is the host. */
  private final Set<DeviceBuffer> direct = ConcurrentHashMap.newKeySet();

  private NetRanks ranks;

  EthernetStagedTransferContract(Function<Predicate<DeviceBuffer>, NetRanks> opener) {
    this.opener = opener;
  }

  @BeforeEach
  void open() {
    ranks = opener.apply(buffer -> !direct.contains(buffer));
  }

  @AfterEach
  void close() throws Exception {
    ranks.close();
  }

  /** Memory that sockets reach, of a rank's own device or of the host beside it. */
  private RegisteredMemory direct(int rank, long size) {
    DeviceBuffer buffer = ranks.allocateOnHost(rank, size);
    direct.add(buffer);
    return ranks.register(rank, buffer);
  }

  @Test
  void shouldCarryEverySizeAroundPiecesAndRings() throws Exception {
    Connection link = ranks.connect(0).get(0);
    int piece = StagingSlots.SLOT_BYTES;
    int ring = StagingSlots.MAX_SLOTS * StagingSlots.SLOT_BYTES;
    int[] sizes = {
      1,
      7,
      2048,
      2049,
      4095,
      4096,
      4097,
      piece - 1,
      piece,
      piece + 1,
      ring - 33,
      ring - 32,
      ring - 1,
      ring,
      ring + 1,
      3 * ring + 5
    };
    int room = 3 * ring + 64;
    RegisteredMemory source = ranks.memory(0, room);
    byte[] bytes = Contents.fill(source, 1);
    RegisteredMemory target = ranks.memory(1, room);
    RegisteredMemory remote = ranks.seenByPeer(target);
    for (int size : sizes) {
      byte[] before = Contents.fill(target, size);
      link.write(remote, 13, source, 5, size);
      NetRanks.get(link.flush(NetRanks.LIMIT));
      System.arraycopy(bytes, 5, before, 13, size);
      assertThat(Arrays.equals(Contents.get(target, 0, room), before)).as("size=" + size).isTrue();
    }
  }

  @Test
  void shouldGoAroundTheRingsManyTimes() throws Exception {
    int size = 3 << 20;
    List<Connection> ends = ranks.connect(0);
    RegisteredMemory[] sources = {ranks.memory(0, size), ranks.memory(1, size)};
    RegisteredMemory[] targets = {ranks.memory(0, size), ranks.memory(1, size)};
    byte[][] bytes = {Contents.fill(sources[0], 3), Contents.fill(sources[1], 4)};
    byte[][] expected = {new byte[size], new byte[size]};
    Random random = new Random(5);
    for (int i = 0; i < Rounds.of(150, 400); i++) {
      for (int rank = 0; rank < 2; rank++) {
        int length = 1 + random.nextInt(1 << (1 + random.nextInt(20)));
        int from = random.nextInt(size - length);
        int to = random.nextInt(size - length);
        ends.get(rank).write(ranks.seenByPeer(targets[1 - rank]), to, sources[rank], from, length);
        System.arraycopy(bytes[rank], from, expected[1 - rank], to, length);
      }
    }
    for (Connection end : ends) {
      NetRanks.get(end.flush(NetRanks.LIMIT));
    }
    for (int rank = 0; rank < 2; rank++) {
      byte[] found = Contents.get(targets[rank], 0, size);
      assertThat(Arrays.equals(found, expected[rank])).as("rank " + rank).isTrue();
    }
  }

  @Test
  void shouldNeverShowSignalBeforeItsDataUnderLoad() throws Exception {
    assertOrder(ranks.memory(1, 8), Rounds.of(1000, 3000));
  }

  @Test
  void shouldNeverShowSignalInHostMemoryBeforeDataInTheDevices() throws Exception {
    assertOrder(direct(1, 8), Rounds.of(400, 1000));
  }

  /** Posts as fast as it can; the data before a signal must be visible when the signal is. */
  private void assertOrder(RegisteredMemory signal, int rounds) throws Exception {
    int slot = 3000;
    Connection link = ranks.connect(0).get(0);
    RegisteredMemory source = ranks.memory(0, (long) rounds * slot);
    RegisteredMemory target = ranks.memory(1, (long) rounds * slot);
    RegisteredMemory remote = ranks.seenByPeer(target);
    RegisteredMemory remoteSignal = ranks.seenByPeer(signal);
    for (int i = 0; i < rounds; i++) {
      Contents.putLong(source, (long) i * slot, i + 1);
      Contents.putLong(source, (long) i * slot + 2000, i + 1);
    }
    AtomicBoolean done = new AtomicBoolean();
    CompletableFuture<Void> load = CompletableFuture.runAsync(() -> load(done));
    try {
      AtomicLong counter = new AtomicLong();
      CompletableFuture<Void> posting =
          CompletableFuture.runAsync(
              () -> {
                for (int i = 0; i < rounds; i++) {
                  int size = i % 3 == 0 ? slot : 2008;
                  link.write(remote, (long) i * slot, source, (long) i * slot, size);
                  link.updateAndSync(remoteSignal, 0, counter, i + 1);
                }
              });
      Set<Long> seen = new HashSet<>();
      long deadline = System.nanoTime() + NetRanks.LIMIT.toNanos();
      for (long value = 0; value < rounds && System.nanoTime() < deadline; ) {
        value = Contents.getLong(signal, 0);
        if (value > 0 && seen.add(value)) {
          long at = (value - 1) * slot;
          assertThat(Contents.getLong(target, at)).isEqualTo(value);
          assertThat(Contents.getLong(target, at + 2000)).isEqualTo(value);
        }
      }
      assertThat(seen).contains((long) rounds);
      NetRanks.get(posting);
    } finally {
      done.set(true);
      NetRanks.get(load);
    }
  }

  /** Keeps another connection between the same ranks busy. */
  private void load(AtomicBoolean done) {
    try {
      int size = 1 << 20;
      Connection other = ranks.connect(77).get(0);
      RegisteredMemory source = ranks.memory(0, size);
      RegisteredMemory remote = ranks.seenByPeer(ranks.memory(1, size));
      while (!done.get()) {
        other.write(remote, 0, source, 0, size);
        NetRanks.get(other.flush(NetRanks.LIMIT));
      }
    } catch (Exception e) {
      throw new AssertionError(e);
    }
  }

  @Test
  void shouldKeepOrderWhenHostAndDeviceMemoryTakeTurns() throws Exception {
    int size = 1 << 20;
    Connection link = ranks.connect(0).get(0);
    RegisteredMemory[] sources = {ranks.memory(0, size), direct(0, size)};
    RegisteredMemory[] targets = {ranks.memory(1, size), direct(1, size)};
    byte[][] bytes = {Contents.fill(sources[0], 1), Contents.fill(sources[1], 2)};
    byte[][] expected = {new byte[size], new byte[size]};
    RegisteredMemory[] signals = {ranks.memory(1, 8), direct(1, 8)};
    AtomicLong counter = new AtomicLong();
    Random random = new Random(9);
    for (int round = 1; round <= Rounds.of(15, 60); round++) {
      for (int i = 0; i < 20; i++) {
        int from = random.nextInt(2);
        int to = random.nextInt(2);
        int length = 1 + random.nextInt(1 << (1 + random.nextInt(17)));
        int source = random.nextInt(size - length);
        int target = random.nextInt(size - length);
        link.write(ranks.seenByPeer(targets[to]), target, sources[from], source, length);
        System.arraycopy(bytes[from], source, expected[to], target, length);
      }
      RegisteredMemory signal = signals[random.nextInt(2)];
      link.updateAndSync(ranks.seenByPeer(signal), 0, counter, round);
      long deadline = System.nanoTime() + NetRanks.LIMIT.toNanos();
      while (Contents.getLong(signal, 0) < round && System.nanoTime() < deadline) {
        Thread.onSpinWait();
      }
      for (int to = 0; to < 2; to++) {
        assertThat(Arrays.equals(Contents.get(targets[to], 0, size), expected[to]))
            .as("round " + round)
            .isTrue();
      }
    }
  }
}

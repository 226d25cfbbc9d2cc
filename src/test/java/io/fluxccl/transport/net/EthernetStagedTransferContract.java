// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import static io.fluxccl.transport.ConnectedRanks.get;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.device.Device;
import io.fluxccl.testing.HangLimit;
import io.fluxccl.testing.Rounds;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.Contents;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.Transfer;
import java.util.Arrays;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Supplier;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/**
 * Signals of staged memory are seen after the data that precede them, whatever else the connection
 * and others move; run on the host and on GPUs.
 */
@Timeout(120)
abstract class EthernetStagedTransferContract {
  private final Supplier<Device> opener0;
  private final Supplier<Device> opener1;
  private NetRanks ranks;

  EthernetStagedTransferContract(Supplier<Device> opener0, Supplier<Device> opener1) {
    this.opener0 = opener0;
    this.opener1 = opener1;
  }

  @BeforeEach
  void open() {
    ranks = NetRanks.staged(opener0.get(), opener1.get());
  }

  @AfterEach
  void close() {
    ranks.close();
  }

  @Test
  void shouldNeverShowSignalBeforeItsDataUnderLoad() throws Exception {
    assertOrder(ranks.memory(1, 8), Rounds.of(1000, 3000));
  }

  @Test
  void shouldNeverShowSignalInHostMemoryBeforeDataInTheDevices() throws Exception {
    assertOrder(ranks.direct(1, 8), Rounds.of(400, 1000));
  }

  /** Posts as fast as it can; the data before a signal must be visible when the signal is. */
  private void assertOrder(RegisteredMemory signal, int rounds) throws Exception {
    int slot = 3000;
    Transfer transfer = ranks.transfer(0, rounds * slot);
    RegisteredMemory remoteSignal = ranks.seenByPeer(signal);
    for (int i = 0; i < rounds; i++) {
      Contents.putLong(transfer.source(), (long) i * slot, i + 1);
      Contents.putLong(transfer.source(), (long) i * slot + 2000, i + 1);
    }
    AtomicBoolean done = new AtomicBoolean();
    CompletableFuture<Void> load = CompletableFuture.runAsync(() -> load(done));
    try {
      AtomicLong counter = new AtomicLong();
      CompletableFuture<Void> posting =
          CompletableFuture.runAsync(
              () -> {
                for (int i = 0; i < rounds; i++) {
                  transfer.write((long) i * slot, (long) i * slot, i % 3 == 0 ? slot : 2008);
                  transfer.link().updateAndSync(remoteSignal, 0, counter, i + 1);
                }
              });
      long began = HangLimit.start();
      for (long value = 0, seen = 0; value < rounds; seen = value) {
        value = Contents.getLong(signal, 0);
        if (value > seen) {
          long at = (value - 1) * slot;
          assertThat(Contents.getLong(transfer.target(), at)).isEqualTo(value);
          assertThat(Contents.getLong(transfer.target(), at + 2000)).isEqualTo(value);
        }
        HangLimit.check(began, "the last signal is seen");
      }
      get(posting);
    } finally {
      done.set(true);
      get(load);
    }
  }

  /** Keeps another connection between the same ranks busy. */
  private void load(AtomicBoolean done) {
    try {
      Transfer other = ranks.transfer(77, 1 << 20);
      while (!done.get()) {
        other.write().flush();
      }
    } catch (Exception e) {
      throw new AssertionError(e);
    }
  }

  @Test
  void shouldKeepOrderWhenHostAndDeviceMemoryTakeTurns() throws Exception {
    int size = 1 << 20;
    Connection link = ranks.connect(0).get(0);
    RegisteredMemory[] sources = {ranks.memory(0, size), ranks.direct(0, size)};
    RegisteredMemory[] targets = {ranks.memory(1, size), ranks.direct(1, size)};
    RegisteredMemory[] signals = {ranks.memory(1, 8), ranks.direct(1, 8)};
    byte[][] bytes = {Contents.fill(sources[0], 1), Contents.fill(sources[1], 2)};
    byte[][] expected = {new byte[size], new byte[size]};
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
      long began = HangLimit.start();
      while (Contents.getLong(signal, 0) < round) {
        HangLimit.check(began, "the signal is seen");
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

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.pipe;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.device.PinnedBuffer;
import io.fluxccl.device.host.HostDevice;
import io.fluxccl.device.host.HostMemory;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

class MappedPipeTest {
  private static final SlotRing RING = new SlotRing(64);

  private final HostDevice device = HostDevice.create();
  private final PinnedBuffer memory = device.allocatePinned((int) (2 * RING.bytes() + 64));
  private final long abort = memory.deviceAddress() + 2 * RING.bytes();
  private final List<Integer> otherCalls = new ArrayList<>();
  private final MappedPipe left;
  private final MappedPipe right;

  MappedPipeTest() {
    long toRight = memory.deviceAddress();
    long toLeft = toRight + RING.bytes();
    HostMemory.putLong(abort, 0);
    left = new MappedPipe(1, RING, toRight, toLeft, abort, otherCalls::add);
    right = new MappedPipe(0, RING, toLeft, toRight, abort, otherCalls::add);
  }

  @AfterEach
  void close() {
    memory.close();
    device.close();
  }

  @Test
  void shouldFindRoomThoughBothEndsFilledTheirSlotsBeforeEitherTook() {
    fill(left);
    fill(right);
    assertThat(left.hasRoom()).isFalse();
    assertThat(right.hasRoom()).isFalse();

    // No message that could report the takes is left to send, only the separate counter.
    for (int i = 0; i < SlotRing.SLOTS / 2; i++) {
      left.take();
      left.release();
    }
    assertThat(right.hasRoom()).isTrue();
    assertThat(left.hasRoom()).isFalse();
  }

  @Test
  void shouldReportAMessageOfAnotherCallOnceAndNotTakeIt() {
    left.begin(7, 7);
    right.begin(8, 8);
    left.claim();
    left.publish(0);
    assertThat(right.hasMessage()).isFalse();
    assertThat(right.hasMessage()).isFalse();
    assertThat(otherCalls).containsExactly(right.peer());

    right.begin(7, 7);
    assertThat(right.hasMessage()).isTrue();
  }

  @Test
  void shouldNeverOverwriteAMessageThatWasNotTaken() {
    for (int message = 0; message < 5 * SlotRing.SLOTS; message++) {
      HostMemory.putLong(left.claim(), message);
      left.publish(message);
      if (message % 3 != 0) {
        takeWhatIsThere();
      }
    }
  }

  private long next;

  private void takeWhatIsThere() {
    while (right.hasMessage()) {
      assertThat(right.wordToTake()).isEqualTo(next);
      assertThat(HostMemory.getLong(right.take())).isEqualTo(next++);
      right.release();
    }
  }

  private static void fill(MappedPipe pipe) {
    for (int i = 0; i < SlotRing.SLOTS; i++) {
      pipe.claim();
      pipe.publish(i);
    }
  }
}

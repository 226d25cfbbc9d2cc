// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.TransportFailure;
import io.fluxccl.bootstrap.GatherAnswer.Blocks;
import io.fluxccl.bootstrap.GatherAnswer.GaveUp;
import io.fluxccl.bootstrap.GatherAnswer.Missing;
import io.fluxccl.wire.WireWriter;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.Test;

class GatherAnswerTest {
  private static final int LEADER = 3;

  private static GatherAnswer read(byte[] bytes) {
    return GatherAnswer.of(Message.of(bytes), LEADER, 2);
  }

  @Test
  void shouldDecodeEncodedAnswers() {
    Blocks blocks =
        (Blocks) read(new Blocks(List.of(new byte[] {7}, new byte[0])).toMessage().bytes());
    assertThat(blocks.blocks()).containsExactly(new byte[] {7}, new byte[0]);
    assertThat(read(new Missing(List.of(1, 5)).toMessage().bytes()))
        .isEqualTo(new Missing(List.of(1, 5)));
    assertThat(read(new GaveUp(1, "late").toMessage().bytes())).isEqualTo(new GaveUp(1, "late"));
  }

  @Test
  void shouldNameTheLeaderWhenAnAnswerIsMalformed() {
    byte[] tooMany = new Blocks(List.of(new byte[1], new byte[1], new byte[1])).toMessage().bytes();
    byte[] negative = new WireWriter().uint8(0).int32(1).int32(-1).toBytes();
    byte[] nobody = new WireWriter().uint8(1).int32(0).toBytes();
    for (byte[] each : List.of(new byte[0], new byte[] {9}, tooMany, negative, nobody)) {
      assertThatThrownBy(() -> read(each))
          .isInstanceOfSatisfying(
              TransportFailure.class, failure -> assertThat(failure.rank()).isEqualTo(LEADER));
    }
  }

  @Test
  void shouldRefuseRandomBytesOrReadThem() {
    Random random = new Random(1);
    for (int i = 0; i < 10_000; i++) {
      byte[] bytes = new byte[random.nextInt(40)];
      random.nextBytes(bytes);
      if (bytes.length > 0) {
        bytes[0] = (byte) (i % 3);
        Arrays.fill(bytes, Math.min(2, bytes.length), Math.min(5, bytes.length), (byte) 0);
      }
      try {
        assertThat(read(bytes)).isNotNull();
      } catch (TransportFailure refused) {
        assertThat(refused.rank()).isEqualTo(LEADER);
      }
    }
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.testing.Rounds;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.Contents;
import io.fluxccl.transport.RegisteredMemory;
import java.util.HashMap;
import java.util.Map;
import java.util.Random;
import net.jqwik.api.ForAll;
import net.jqwik.api.Property;
import net.jqwik.api.lifecycle.AfterContainer;

class EthernetWriteTest {
  private static final int SIZE = 3 << 20;
  private static final Map<Boolean, NetRanks> RANKS = new HashMap<>();

  @AfterContainer
  static void close() throws Exception {
    for (NetRanks ranks : RANKS.values()) {
      ranks.close();
    }
    RANKS.clear();
  }

  @Property(tries = 40)
  void shouldChangeExactlyTheBytesWrittenWhateverTheirSizesAndOffsets(
      @ForAll boolean staged, @ForAll long seed) throws Exception {
    NetRanks ranks = RANKS.computeIfAbsent(staged, NetRanks::ethernet);
    Random random = new Random(seed);
    Connection link = ranks.connect(random.nextInt()).get(0);
    RegisteredMemory source = ranks.memory(0, SIZE);
    RegisteredMemory target = ranks.memory(1, SIZE);
    RegisteredMemory remote = ranks.seenByPeer(target);
    byte[] pattern = new byte[SIZE];
    random.nextBytes(pattern);
    Contents.put(source, 0, pattern);
    byte[] expected = new byte[SIZE];
    for (int i = 0; i < Rounds.of(15, 40); i++) {
      int size = random.nextInt(1 << (1 + random.nextInt(21)));
      int from = random.nextInt(SIZE - size + 1);
      int to = random.nextInt(SIZE - size + 1);
      link.write(remote, to, source, from, size);
      System.arraycopy(pattern, from, expected, to, size);
    }
    NetRanks.get(link.flush(NetRanks.LIMIT));
    assertThat(Contents.get(target, 0, SIZE)).isEqualTo(expected);
    link.close();
    source.close();
    target.close();
  }
}

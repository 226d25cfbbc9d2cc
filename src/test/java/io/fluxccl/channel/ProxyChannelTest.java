// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.channel;

import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static org.assertj.core.api.Assertions.assertThat;
import static org.awaitility.Awaitility.await;

import io.fluxccl.Aborted;
import io.fluxccl.TransportFailure;
import io.fluxccl.device.host.HostMemory;
import io.fluxccl.testing.Rounds;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.Ranks;
import io.fluxccl.transport.Transport;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;

@Ranks(value = 2, seconds = 220, leakCheck = false)
class ProxyChannelTest {
  @ParameterizedTest
  @CsvSource({
    "SHM,1",
    "SHM,1024",
    "SHM,1048576",
    "ETHERNET,1",
    "ETHERNET,1024",
    "ETHERNET,1048576"
  })
  void shouldPlayPingPong(Transport transport, int elements, LocalRank rank) throws Exception {
    int rounds = elements > 100_000 ? Rounds.of(20, 100) : Rounds.of(200, 1000);
    try (ProxyEnd end = ProxyEnd.between(rank, transport, elements * 4L).start()) {
      AtomicLong wrong = new AtomicLong();
      end.run(
          1,
          thread -> {
            for (int round = 0; round < rounds; round++) {
              if ((round & 1) == rank.rank()) {
                for (int i = 0; i < elements; i++) {
                  end.link.putInt(i, i ^ round);
                }
                assertThat(end.channel.putWithSignalAndFlush(0, 0, elements * 4L)).isTrue();
              } else {
                assertThat(end.channel.await()).isTrue();
                for (int i = 0; i < elements; i++) {
                  wrong.addAndGet(end.link.getInt(i) == (i ^ round) ? 0 : 1);
                }
              }
            }
          });
      assertThat(wrong).hasValue(0);
      rank.awaitAll();
    }
  }

  @ParameterizedTest
  @EnumSource(names = {"SHM", "ETHERNET"})
  void shouldNeverShowASignalBeforeItsData(Transport transport, LocalRank rank) throws Exception {
    int rounds = Rounds.of(300, 10_000);
    int words = 64;
    // First half: data that this rank sends; second half: data that it receives.
    try (ProxyEnd end = ProxyEnd.between(rank, transport, words * 8L).start()) {
      AtomicInteger early = new AtomicInteger();
      end.run(
          1,
          thread -> {
            for (int round = 1; round <= rounds; round++) {
              for (int i = 0; i < words; i++) {
                end.link.putInt(i, round);
              }
              assertThat(end.channel.put(words * 4L, 0, words * 4L)).isTrue();
              assertThat(end.channel.signal()).isTrue();
              assertThat(end.channel.await()).isTrue();
              for (int i = 0; i < words; i++) {
                if (end.link.getInt(words + i) != round) {
                  early.incrementAndGet();
                }
              }
              // Both have read before either writes again.
              assertThat(end.channel.signal()).isTrue();
              assertThat(end.channel.await()).isTrue();
              assertThat(end.channel.flush()).isTrue();
            }
          });
      assertThat(early).hasValue(0);
      rank.awaitAll();
    }
  }

  @ParameterizedTest
  @EnumSource(names = {"SHM", "ETHERNET"})
  void shouldLetFourThreadsFlushOneChannelAtOnce(Transport transport, LocalRank rank)
      throws Exception {
    int threads = 4;
    int rounds = Rounds.of(150, 500);
    int bytes = 4096;
    try (ProxyEnd end = ProxyEnd.between(rank, transport, 2L * threads * bytes).start()) {
      end.run(
          threads,
          thread -> {
            long offset = (long) thread.threadIdx() * bytes;
            for (int round = 1; round <= rounds; round++) {
              HostMemory.fill(end.link.buffer.address() + offset, bytes, (byte) round);
              assertThat(end.channel.put(threads * bytes + offset, offset, bytes)).isTrue();
              assertThat(end.channel.flush()).isTrue();
            }
          });
      rank.awaitAll();
      int last = (rounds & 0xff) * 0x01010101;
      for (int i = 0; i < threads * bytes / 4; i++) {
        assertThat(end.link.getInt(threads * bytes / 4 + i)).isEqualTo(last);
      }
      rank.awaitAll();
    }
  }

  @Test
  void shouldWorkWhenSteppedByHand(LocalRank rank) {
    try (ProxyEnd end = ProxyEnd.between(rank, Transport.SHM, 128).steppedByHand()) {
      assertThat(end.step()).isZero();
      end.link.putInt(0, 11 + rank.rank());
      end.channel.putWithSignal(64, 0, 4);
      assertThat(end.step()).isEqualTo(1);
      assertThat(end.channel.await()).isTrue();
      assertThat(end.link.getInt(16)).isEqualTo(11 + end.link.peer);
      // Equal offsets at both ends.
      end.link.putInt(4 + rank.rank(), 21 + rank.rank());
      end.channel.putWithSignal(16 + 4L * rank.rank(), 4);
      assertThat(end.step()).isEqualTo(1);
      assertThat(end.channel.await()).isTrue();
      assertThat(end.link.getInt(4 + end.link.peer)).isEqualTo(21 + end.link.peer);
      rank.awaitAll();
    }
  }

  @Test
  void shouldEndAFlushWhenTheConnectionFails(LocalRank rank) {
    try (ProxyEnd end = ProxyEnd.between(rank, Transport.ETHERNET, 64).start()) {
      assertThat(end.channel.putWithSignalAndFlush(0, 32, 8)).isTrue();
      assertThat(end.channel.await()).isTrue();
      rank.awaitAll();
      if (rank.rank() == 1) {
        end.link.connection.close();
      } else {
        await().until(() -> !end.channel.putWithSignalAndFlush(0, 32, 8));
        assertThat(end.service.failure(0)).isInstanceOf(TransportFailure.class);
        assertThat(end.service.failure(0).rank()).isEqualTo(1);
      }
      rank.awaitAll();
    }
  }

  @Test
  void shouldEndAFlushWithoutAProxyIfTheJobIsAborted(LocalRank rank) throws Exception {
    try (ProxyEnd end = ProxyEnd.between(rank, Transport.SHM, 64)) {
      CompletableFuture<Boolean> flushed = CompletableFuture.supplyAsync(() -> end.channel.flush());
      rank.awaitAll();
      rank.communicator().abort(new Aborted(rank.rank(), "test"));
      assertThat(flushed.get(60, TimeUnit.SECONDS)).isFalse();
    }
  }

  @Test
  void shouldRefuseChannelsWithUnknownIdsOrMemoriesOnTheWrongSides(LocalRank rank) {
    try (ProxyEnd end = ProxyEnd.between(rank, Transport.SHM, 64)) {
      assertRefused(() -> end.service.proxyChannel(1, 0, 1));
      assertRefused(() -> end.service.proxyChannel(0, 2, 1));
      assertRefused(() -> end.service.proxyChannel(0, 1, 0), "rank " + end.link.peer);
    }
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.tcp;

import static io.fluxccl.netplugin.MessageLink.LONG;
import static io.fluxccl.netplugin.MessageLink.await;
import static io.fluxccl.netplugin.MessageLink.failureOf;
import static io.fluxccl.netplugin.tcp.TcpFixture.OPTIONS;
import static io.fluxccl.testing.FailureAssertions.assertFailure;
import static io.fluxccl.testing.FailureAssertions.assertThrows;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.InvalidUsage;
import io.fluxccl.RemoteFailure;
import io.fluxccl.Timeout;
import io.fluxccl.netplugin.MessageLink;
import io.fluxccl.netplugin.NetMemory;
import io.fluxccl.netplugin.NetMisuse;
import io.fluxccl.netplugin.NetPlugin;
import io.fluxccl.netplugin.NetRequest;
import io.fluxccl.testing.AllocatedBytes;
import io.fluxccl.testing.HangLimit;
import io.fluxccl.tls.Tls;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Receives in groups, whose messages tags tell apart. */
@org.junit.jupiter.api.Timeout(120)
class TcpGroupsTest extends TcpFixture {
  private static final int GROUP = 8;
  private static final int ROOM = 100_000;

  private final long[] addresses = new long[GROUP];
  private final long[] sizes = new long[GROUP];
  private final int[] tags = new int[GROUP];
  private final NetMemory[] memories = new NetMemory[GROUP];
  private MessageLink link;

  private NetRequest send(int tag, int offset, int size) {
    return link.send.isend(MessageLink.address(link.source) + offset, size, tag, link.sourceMemory);
  }

  /** Receives a message for each tag, at offsets that are {@code room} bytes apart. */
  private NetRequest receive(int offset, int room, int... wanted) {
    for (int i = 0; i < wanted.length; i++) {
      addresses[i] = MessageLink.address(link.target) + offset + (long) i * room;
      sizes[i] = room;
      tags[i] = wanted[i];
      memories[i] = link.targetMemory;
    }
    return link.receive.irecv(wanted.length, addresses, sizes, tags, memories);
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 3})
  void shouldReceiveEachMessageAtTheAddressOfItsTag(int streams) {
    link = link(OPTIONS.withStreams(streams, 1), GROUP * ROOM);
    int[] order = {3, 7, 0, 5, 1, 6, 2, 4};
    int[] lengths = {0, 1, 500, 70_000, 65_536, ROOM, 17, 4096};
    for (int i = 0; i < GROUP; i++) {
      link.source.put(i * ROOM, (byte) (40 + i));
    }
    NetRequest group = receive(0, ROOM, 10, 11, 12, 13, 14, 15, 16, 17);
    assertThat(group.test()).isFalse();
    for (int which : order) {
      await(send(10 + which, which * ROOM, lengths[which]));
    }
    await(group);
    for (int i = 0; i < GROUP; i++) {
      assertThat(group.size(i)).isEqualTo(lengths[i]);
      assertThat(link.target.get(i * ROOM)).isEqualTo((byte) (lengths[i] == 0 ? 0 : 40 + i));
    }
  }

  private void moveWithOneTagAhead(TcpOptions options) {
    int ahead = 20;
    int rounds = 40;
    link = link(options, 2 * ROOM);
    List<NetRequest> sends = new ArrayList<>();
    for (int i = 0; i < ahead; i++) {
      sends.add(send(1, 0, i % 2 == 0 ? 100 : ROOM));
    }
    int sentAhead = ahead;
    int sentLate = 0;
    int passes = 0;
    for (int round = 0; round < rounds; round++) {
      NetRequest group = receive(0, ROOM, 0, 1);
      long began = HangLimit.start();
      for (boolean done = false; !done; done = group.test()) {
        if (sentAhead < rounds && add(sends, send(1, 0, sentAhead % 2 == 0 ? 100 : ROOM))) {
          sentAhead++;
        }
        // The message that the receiver waits for follows many unexpected messages.
        if (sentLate == round && ++passes % 5 == 0 && add(sends, send(0, 0, 50))) {
          sentLate++;
        }
        sends.removeIf(NetRequest::test);
        HangLimit.check(began, "the group is received");
      }
      assertThat(group.size(0)).isEqualTo(50);
      assertThat(group.size(1)).isEqualTo(round % 2 == 0 ? 100 : ROOM);
    }
    await(sends);
  }

  /** Returns whether there was room for the send. */
  private static boolean add(List<NetRequest> sends, NetRequest send) {
    return send != null && sends.add(send);
  }

  @ParameterizedTest
  @CsvSource({"1, false", "3, false", "1, true"})
  void shouldContinueIfMessagesOfOneTagPrecedeTheirReceivesByFar(int streams, boolean tls) {
    Optional<Tls> secured = tls ? Optional.of(Tls.selfSigned()) : Optional.empty();
    moveWithOneTagAhead(OPTIONS.withStreams(streams, 1).withTls(secured));
  }

  @Test
  void shouldMatchSingleReceivesByTheirTagsToo() {
    link = link(OPTIONS, 64);
    NetRequest first = receive(0, 8, 1);
    NetRequest second = receive(8, 8, 2);
    link.source.put(0, (byte) 1).put(1, (byte) 2);
    await(send(2, 1, 1));
    await(second);
    assertThat(first.test()).isFalse();
    await(send(1, 0, 1));
    await(first);
    assertThat(link.target.get(0)).isEqualTo((byte) 1);
    assertThat(link.target.get(8)).isEqualTo((byte) 2);
  }

  @Test
  void shouldDeliverAnEarlyMessageAfterTheSenderLeft() {
    link = link(OPTIONS, 64);
    NetRequest first = receive(0, 8, 1);
    link.source.put(0, (byte) 9);
    await(send(2, 0, 1));
    await(send(1, 0, 1));
    link.send.close();
    await(first);
    NetRequest early = receive(8, 8, 2);
    await(early);
    assertThat(link.target.get(8)).isEqualTo((byte) 9);
    assertThatThrownBy(() -> await(receive(8, 8, 2))).isInstanceOf(RemoteFailure.class);
  }

  @Test
  void shouldGiveEachMessageThatStillArrivesToAReceiveOfItsOwn() {
    UnexpectedMessages unexpected = new UnexpectedMessages(null);
    List<Integer> sizes = List.of(10, 20);
    sizes.forEach(size -> unexpected.begin(1, size));
    for (int size : sizes) {
      TcpRequest receive = new TcpRequest(null);
      receive.post(0, ROOM, 1, 0);
      unexpected.giveTo(receive);
      assertThat(receive.size()).isEqualTo(size);
    }
    assertThat(unexpected.size(1)).as("left for a third receive").isEqualTo(-1);
  }

  @Test
  void shouldReportTagsOfUnexpectedMessagesIfAReceiveTimesOut() {
    TcpOptions hasty = OPTIONS.withTimeouts(Duration.ofMillis(200), LONG);
    link = link(network(OPTIONS), network(hasty), 64);
    NetRequest waiting = receive(0, 8, 1);
    await(send(77, 0, 1));
    assertFailure(Timeout.class, failureOf(waiting), "it sent messages with tags 77");
  }

  @Test
  void shouldRefuseAnEarlyMessageThatIsTooLongForItsReceive() {
    link = link(OPTIONS, 64);
    NetRequest waiting = receive(0, 8, 1);
    await(send(2, 0, 64));
    await(send(1, 0, 1));
    await(waiting);
    NetRequest small = receive(0, 8, 2);
    assertThat(failureOf(small))
        .isInstanceOf(InvalidUsage.class)
        .isNotInstanceOf(NetMisuse.class)
        .hasMessageContaining("64 bytes");
  }

  @Test
  void shouldLimitGroupsAndTheirSends() {
    link = link(OPTIONS, 64);
    assertThat(network(OPTIONS).properties(0).maxRecvs()).isEqualTo(GROUP);
    assertThrows(
        NetMisuse.class, () -> link.receive.irecv(GROUP + 1, null, null, null, null), "n=9");
    List<NetRequest> groups = new ArrayList<>();
    for (int i = 0; i < NetPlugin.MAX_REQUESTS; i++) {
      groups.add(receive(0, 1, 0, 1, 2, 3, 4, 5, 6, 7));
    }
    assertThrows(NetMisuse.class, () -> receive(0, 1, 0), "32 requests are in flight");
    List<NetRequest> sends = new ArrayList<>();
    for (int i = 0; i < NetPlugin.MAX_REQUESTS * GROUP; i++) {
      sends.add(send(i % GROUP, 0, 1));
    }
    assertThrows(NetMisuse.class, () -> send(0, 0, 1), "256 requests are in flight");
    await(sends);
    await(groups);
    await(receive(0, 1, 3), send(3, 0, 1));
  }

  @Test
  void shouldAllocateNothingWhileGroupsMove() {
    link = link(OPTIONS, GROUP * 64);
    int[] all = {20, 21, 22, 23, 24, 25, 26, 27};
    long least =
        AllocatedBytes.least(
            500,
            () -> {
              for (int i = 0; i < 200; i++) {
                NetRequest group = receive(0, 64, all);
                for (int tag = GROUP - 1; tag >= 0; tag--) {
                  NetRequest send = send(20 + tag, 0, 64);
                  while (!send.test()) {
                    Thread.onSpinWait();
                  }
                }
                while (!group.test()) {
                  Thread.yield();
                }
              }
            });
    assertThat(least).isLessThan(500);
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.tcp;

import static io.fluxccl.netplugin.MessageLink.await;
import static io.fluxccl.testing.FailureAssertions.assertFailure;
import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.FluxCclException;
import io.fluxccl.netplugin.BodyAddressResolver;
import io.fluxccl.netplugin.MessageLink;
import io.fluxccl.netplugin.NetPlugin;
import io.fluxccl.netplugin.NetRequest;
import io.fluxccl.netplugin.reactive.CheckedNetPlugin;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.agrona.BufferUtil;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Messages of a head and a body, whose place the receiver chooses by the head. */
@Timeout(60)
class TcpBodiesTest extends TcpFixture {
  private static final int HEAD = 16;
  private static final int[] BODIES = {0, 1, 100, 16 << 10, 64 << 10, 100_000, 3 << 20};

  private static TcpOptions streams(int streams) {
    return OPTIONS.withStreams(streams, streams);
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 3})
  void shouldPlaceEachBodyAtTheReceiversAddress(int streams) {
    int total = Arrays.stream(BODIES).sum();
    ByteBuffer bodies = BufferUtil.allocateDirectAligned(total, 64);
    ByteBuffer places = BufferUtil.allocateDirectAligned(total, 64);
    for (int i = 0; i < total; i++) {
      bodies.put(i, (byte) (i * 31 + (i >> 8)));
    }
    try (NetPlugin network = CheckedNetPlugin.of(new TcpNetPlugin(streams(streams)));
        MessageLink link = new MessageLink(network, network, HEAD * BODIES.length)) {
      assertThat(network.carriesBodies()).isTrue();
      List<Long> sizes = new ArrayList<>();
      int[] asked = {0};
      BodyAddressResolver place =
          (head, headSize, bodySize) -> {
            assertThat(headSize).isEqualTo(HEAD);
            if (asked[0]++ % 3 < 2) {
              return BodyAddressResolver.NOT_YET;
            }
            sizes.add(bodySize);
            // The head has the offset of its body.
            int index = (int) (head - MessageLink.address(link.target));
            return MessageLink.address(places) + link.target.getInt(index);
          };
      NetRequest[] requests = new NetRequest[2 * BODIES.length];
      int offset = 0;
      for (int i = 0; i < BODIES.length; i++) {
        link.source.putInt(i * HEAD, offset);
        requests[i] =
            link.receive.irecv(
                MessageLink.address(link.target) + i * HEAD, HEAD, link.targetMemory, place);
        requests[BODIES.length + i] =
            link.send.isend(
                MessageLink.address(link.source) + i * HEAD,
                HEAD,
                link.sourceMemory,
                MessageLink.address(bodies) + offset,
                BODIES[i],
                i + 1 < BODIES.length);
        offset += BODIES[i];
      }
      await(requests);
      assertThat(places).isEqualTo(bodies);
      assertThat(sizes).hasSize(BODIES.length - 1).doesNotContain(0L);
      assertThat(requests[0].size(0)).isEqualTo(HEAD);
    }
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 3})
  void shouldRefuseABodyForAReceiveThatPlacesNone(int streams) {
    MessageLink link = link(streams(streams), 1 << 20);
    NetRequest receive = link.irecv(0, 1 << 20);
    long address = MessageLink.address(link.source);
    NetRequest send = link.send.isend(address, HEAD, link.sourceMemory, address, 1 << 20, false);
    assertFailure(FluxCclException.class, MessageLink.failureOf(receive), "it sent no message");
    assertThat(send).isNotNull();
  }

  @Test
  void shouldRefuseAHeadThatIsNotRegistered() {
    MessageLink link = link(OPTIONS, 64);
    long address = MessageLink.address(link.source);
    assertRefused(
        () -> link.send.isend(address + 60, HEAD, link.sourceMemory, address, 8, false),
        "not within the registered");
  }
}

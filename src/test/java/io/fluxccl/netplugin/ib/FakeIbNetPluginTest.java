package io.fluxccl.netplugin.ib;

import static io.fluxccl.netplugin.MessageLink.await;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.InvalidUsage;
import io.fluxccl.RemoteFailure;
import io.fluxccl.TransportFailure;
import io.fluxccl.netplugin.MessageLink;
import io.fluxccl.netplugin.NetHandle;
import io.fluxccl.netplugin.NetListenComm;
import io.fluxccl.netplugin.NetMemory;
import io.fluxccl.netplugin.NetProperties;
import io.fluxccl.netplugin.NetRequest;
import io.fluxccl.netplugin.PointerType;
import io.fluxccl.transport.ib.FakeVerbs;
import java.net.Inet4Address;
import java.net.InetAddress;
import java.net.UnknownHostException;
import java.util.List;
import java.util.Set;
import org.agrona.UnsafeApi;
import org.junit.jupiter.api.Test;

/** Over verbs that need no device. */
class FakeIbNetPluginTest extends IbNetPluginContract {
  private final FakeVerbs verbs = new FakeVerbs();
  private int opened;

  @Override
  IbNetPlugin open(IbNetOptions options) {
    try {
      byte[] address = {10, 0, 0, (byte) ++opened};
      Inet4Address place = (Inet4Address) InetAddress.getByAddress(address);
      IbNetDevice device = new IbNetDevice("fake" + opened, place, 100_000, null, opened);
      return new IbNetPlugin(verbs, List.of(device), options);
    } catch (UnknownHostException e) {
      throw new IllegalStateException(e);
    }
  }

  @Test
  void shouldAllocateNothingWhileMessagesMove() {
    try (MessageLink link = link(OPTIONS, 100_000)) {
      assertThat(link.leastAllocated()).isLessThan(500);
    }
  }

  @Test
  void shouldReachAllOfARangeThatTakesSeveralRegistrations() {
    long size = (5L << 30) / 2;
    int bytes = 4096;
    // Never touched but where messages are, so there is no memory behind it.
    long memory = UnsafeApi.allocateMemory(size);
    try (MessageLink link = link(OPTIONS, bytes)) {
      try (NetMemory large = link.receive.register(memory, size, PointerType.HOST)) {
        for (long offset : new long[] {0, (1L << 30) - 1, (2L << 30) - bytes / 2, size - bytes}) {
          link.source.put(bytes - 1, (byte) (offset >> 28 | 1));
          NetRequest receive = link.receive.irecv(memory + offset, bytes, 0, large);
          await(link.isend(0, bytes), receive);
          assertThat(UnsafeApi.getByte(memory + offset + bytes - 1))
              .isEqualTo((byte) (offset >> 28 | 1));
        }
      }
    } finally {
      UnsafeApi.freeMemory(memory);
    }
  }

  @Test
  void shouldEndAllOfAConnectionWhenMemoryCannotBeDeregistered() {
    IbNetPlugin from = network(OPTIONS);
    IbNetPlugin to = network(OPTIONS);
    MessageLink link = new MessageLink(from, to, 64);
    link.send.register(1 << 20, 5L << 30, PointerType.HOST);
    NetMemory pieces = link.receive.register(1 << 20, 5L << 30, PointerType.HOST);
    verbs.refuseToDeregister();
    assertThatThrownBy(pieces::close).isInstanceOf(TransportFailure.class);
    // The target and the mailbox.
    assertThat(to.port(0).openMemories()).isEqualTo(2);
    assertThatThrownBy(link.receive::close).isInstanceOf(TransportFailure.class);
    assertThat(to.port(0).openMemories()).isZero();
    assertThat(to.connections()).isEmpty();
    assertThatThrownBy(link.send::close).isInstanceOf(TransportFailure.class);
    assertThat(from.port(0).openMemories()).isZero();
    assertThat(from.connections()).isEmpty();
  }

  @Test
  void shouldCloseItsDeviceWhenMemoryCannotBeDeregistered() {
    IbNetPlugin from = network(OPTIONS);
    IbNetPlugin to = network(OPTIONS);
    new MessageLink(from, to, 64);
    verbs.refuseToDeregister();
    for (IbNetPlugin network : List.of(from, to)) {
      assertThatThrownBy(network::close).isInstanceOf(TransportFailure.class);
    }
    assertThat(verbs.openPorts()).isZero();
  }

  @Test
  void shouldSayThatNobodyListensAnyMore() {
    IbNetPlugin to = network(OPTIONS);
    IbNetPlugin from = network(OPTIONS);
    NetListenComm listener = to.listen(0);
    NetHandle handle = new NetHandle(listener.handle());
    listener.close();
    to.close();
    assertThatThrownBy(
            () -> {
              while (from.connect(0, handle) == null) {
                Thread.onSpinWait();
              }
            })
        .isInstanceOf(RemoteFailure.class)
        .hasMessageContaining("connect to 10.0.0.1:")
        .hasMessageContaining("on fake2");
    assertThat(from.port(0).openMemories()).isZero();
  }

  @Test
  void shouldDescribeItsDevice() {
    NetProperties properties = network(OPTIONS).properties(0);
    assertThat(properties.name()).isEqualTo("fake1");
    assertThat(properties.speedMbps()).isEqualTo(100_000);
    assertThat(properties.pointers()).isEqualTo(Set.of(PointerType.HOST));
    assertThat(properties.maxRecvs()).isEqualTo(1);
    assertThatThrownBy(() -> network(OPTIONS).properties(1)).isInstanceOf(InvalidUsage.class);
  }
}

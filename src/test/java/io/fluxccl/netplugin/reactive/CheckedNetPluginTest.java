// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.reactive;

import static io.fluxccl.netplugin.NetLink.address;
import static io.fluxccl.netplugin.NetLink.await;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.InvalidUsage;
import io.fluxccl.netplugin.NetLink;
import io.fluxccl.netplugin.NetMemory;
import io.fluxccl.netplugin.NetPlugin;
import io.fluxccl.netplugin.NetRequest;
import io.fluxccl.netplugin.PointerType;
import io.fluxccl.netplugin.vendor.NativeNetPlugin;
import io.fluxccl.testing.RequiresNativeLibrary;
import io.fluxccl.testing.TestNet;
import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

@RequiresNativeLibrary
@Timeout(60)
class CheckedNetPluginTest {
  private static final int SIZE = 4096;

  @TempDir private static Path folder;

  private final ByteBuffer source = NetLink.memory(SIZE);
  private final ByteBuffer target = NetLink.memory(SIZE);
  private NetPlugin plugin;
  private NetLink link;
  private NetMemory from;
  private NetMemory to;

  @BeforeEach
  void open() throws Exception {
    plugin = NativeNetPlugin.open(TestNet.library(folder, 11, "GROUP=2").toString());
    link = new NetLink(plugin, 0);
    from = link.sender.register(address(source), SIZE, PointerType.HOST);
    to = link.receiver.register(address(target), SIZE, PointerType.HOST);
  }

  @AfterEach
  void close() {
    link.close();
    plugin.close();
  }

  private static void assertRefused(Runnable call, String reason) {
    assertThatThrownBy(call::run).isInstanceOf(InvalidUsage.class).hasMessageContaining(reason);
  }

  @Test
  void shouldRefuseMoreRequestsThanAllowed() {
    List<NetRequest> receives = new ArrayList<>();
    for (int i = 0; i < plugin.maxRequests(); i++) {
      receives.add(link.receiver.irecv(address(target), SIZE, 0, to));
    }
    assertRefused(() -> link.receiver.irecv(address(target), SIZE, 0, to), "32 requests in flight");
    List<NetRequest> sends = new ArrayList<>();
    for (int i = 0; i < 2 * plugin.maxRequests(); i++) {
      sends.add(link.sender.isend(address(source), 1, 0, from));
    }
    assertRefused(() -> link.sender.isend(address(source), 1, 0, from), "64 requests in flight");
    for (int i = 0; i < receives.size(); i++) {
      NetLink.finish(sends.get(i), receives.get(i));
    }
    assertThat(await(() -> link.receiver.irecv(address(target), SIZE, 0, to))).isNotNull();
  }

  @Test
  void shouldRefuseMemoryThatIsMissingForeignTooSmallOrClosed() {
    assertRefused(() -> link.sender.isend(address(source), 8, 0, null), "memory=null");
    assertRefused(() -> link.sender.isend(address(source), 8, 0, () -> {}), "foreign memory");
    assertRefused(() -> link.sender.isend(address(target), 8, 0, to), "with another connection");
    assertRefused(() -> link.sender.isend(address(source) + 1, SIZE, 0, from), "outside of the");
    assertRefused(() -> link.sender.isend(address(source) - 1, 8, 0, from), "outside of the");
    assertRefused(() -> link.sender.isend(address(source), -1, 0, from), "size=-1");
    assertRefused(() -> link.receiver.irecv(address(target), SIZE + 1, 0, to), "outside of the");
    from.close();
    from.close();
    assertRefused(() -> link.sender.isend(address(source), 8, 0, from), "registration is closed");
  }

  @Test
  void shouldLetMemoryBeSharedWhereRegistrationsAreGlobal() {
    try (NetLink one = new NetLink(plugin, 1);
        NetLink other = new NetLink(plugin, 1);
        NetMemory memory = one.sender.register(address(source), SIZE, PointerType.HOST)) {
      NetMemory room = one.receiver.register(address(target), SIZE, PointerType.HOST);
      source.putLong(0, 77);
      NetLink.finish(
          await(() -> other.sender.isend(address(source), 8, 0, memory)),
          await(() -> other.receiver.irecv(address(target), 8, 0, room)));
      assertThat(target.getLong(0)).isEqualTo(77);
    }
  }

  @Test
  void shouldRefuseGroupsThatCannotBe() {
    long[] addresses = {address(target), address(target), address(target)};
    long[] sizes = {8, 8, 8};
    NetMemory[] memories = {to, to, to};
    int[] tags = {1, 1, 2};
    assertRefused(() -> link.receiver.irecv(3, addresses, sizes, tags, memories), "n=3");
    assertRefused(() -> link.receiver.irecv(0, addresses, sizes, tags, memories), "n=0");
    assertRefused(() -> link.receiver.irecv(2, addresses, sizes, tags, memories), "tag=1");
    assertRefused(() -> link.receiver.iflush(3, addresses, sizes, memories), "n=3");
  }

  @Test
  void shouldFailAReceiveThatIsTooSmall() {
    NetRequest receive = link.receiver.irecv(address(target), 8, 0, to);
    assertThat(link.sender.isend(address(source), 64, 0, from)).isNotNull();
    assertThatThrownBy(() -> Awaitility.await().until(receive::test))
        .isInstanceOf(InvalidUsage.class);
  }

  @Test
  void shouldFlushReceivedData() {
    NetRequest flush =
        link.receiver.iflush(1, new long[] {address(target)}, new long[] {8}, new NetMemory[] {to});
    Awaitility.await().until(flush::test);
  }

  @Test
  void shouldRefuseUseAfterCloseAndAfterDone() {
    NetRequest receive = link.receiver.irecv(address(target), 8, 0, to);
    NetRequest send = link.sender.isend(address(source), 8, 0, from);
    assertRefused(() -> receive.size(0), "in flight");
    NetLink.finish(send, receive);
    assertRefused(receive::test, "over already");
    assertRefused(() -> receive.size(2), "no index");
    NetRequest lost = link.receiver.irecv(address(target), 8, 0, to);
    link.receiver.close();
    assertRefused(lost::test, "closed");
    assertRefused(() -> link.receiver.irecv(address(target), 8, 0, to), "closed");
    assertRefused(() -> link.receiver.register(1, 1, PointerType.HOST), "closed");
    plugin.close();
    assertRefused(() -> link.sender.isend(address(source), 8, 0, from), "closed");
    assertRefused(() -> plugin.listen(0), "closed");
  }

  @Test
  void shouldRefuseDevicesHandlesAndPointersThatCannotBe() {
    assertRefused(() -> plugin.listen(2), "device=2");
    assertRefused(() -> plugin.properties(-1), "device=-1");
    assertRefused(() -> plugin.connect(0, null), "handle=null");
    assertRefused(() -> link.sender.register(1, 1, PointerType.CUDA), "type=CUDA");
    assertRefused(() -> link.sender.register(1, 1, PointerType.DMABUF), "type=DMABUF");
    assertRefused(() -> link.sender.register(1, -1, PointerType.HOST), "size=-1");
    assertRefused(() -> link.sender.registerDmaBuf(1, 1, PointerType.CUDA, 0, 3), "type=DMABUF");
  }
}

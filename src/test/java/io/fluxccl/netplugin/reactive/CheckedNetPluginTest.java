// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.reactive;

import static io.fluxccl.netplugin.MessageLink.await;
import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.netplugin.MessageLink;
import io.fluxccl.netplugin.NetMemory;
import io.fluxccl.netplugin.NetPlugin;
import io.fluxccl.netplugin.NetRequest;
import io.fluxccl.netplugin.PointerType;
import io.fluxccl.netplugin.vendor.NativeNetPlugin;
import io.fluxccl.testing.RequiresNativeLibrary;
import io.fluxccl.testing.TestNet;
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

  private NetPlugin plugin;
  private MessageLink link;
  private NetMemory from;
  private NetMemory to;
  private long source;
  private long target;

  @BeforeEach
  void open() throws Exception {
    plugin = NativeNetPlugin.open(TestNet.library(folder, 11, "GROUP=2").toString());
    link = new MessageLink(plugin, plugin, SIZE);
    from = link.sourceMemory;
    to = link.targetMemory;
    source = MessageLink.address(link.source);
    target = MessageLink.address(link.target);
  }

  @AfterEach
  void close() {
    link.close();
    plugin.close();
  }

  private NetRequest send(int size) {
    return link.send.isend(source, size, 0, from);
  }

  private NetRequest receive(int size) {
    return link.receive.irecv(target, size, 0, to);
  }

  @Test
  void shouldRefuseMoreRequestsThanAllowed() {
    List<NetRequest> receives = new ArrayList<>();
    for (int i = 0; i < plugin.maxRequests(); i++) {
      receives.add(receive(SIZE));
    }
    assertRefused(() -> receive(SIZE), "32 requests in flight");
    List<NetRequest> sends = new ArrayList<>();
    for (int i = 0; i < 2 * plugin.maxRequests(); i++) {
      sends.add(send(1));
    }
    assertRefused(() -> send(1), "64 requests in flight");
    for (int i = 0; i < receives.size(); i++) {
      await(sends.get(i), receives.get(i));
    }
    assertThat(await(() -> receive(SIZE))).isNotNull();
  }

  @Test
  void shouldRefuseMemoryThatIsMissingForeignTooSmallOrClosed() {
    assertRefused(() -> link.send.isend(source, 8, 0, null), "memory=null");
    assertRefused(() -> link.send.isend(source, 8, 0, () -> {}), "foreign memory");
    assertRefused(() -> link.send.isend(target, 8, 0, to), "with another connection");
    assertRefused(() -> link.send.isend(source + 1, SIZE, 0, from), "outside of the");
    assertRefused(() -> link.send.isend(source - 1, 8, 0, from), "outside of the");
    assertRefused(() -> link.send.isend(source, -1, 0, from), "size=-1");
    assertRefused(() -> link.receive.irecv(target, SIZE + 1, 0, to), "outside of the");
    from.close();
    from.close();
    assertRefused(() -> send(8), "registration is closed");
  }

  @Test
  void shouldLetMemoryBeSharedWhereRegistrationsAreGlobal() {
    try (MessageLink one = new MessageLink(plugin, 1, link.source, link.target);
        MessageLink other = new MessageLink(plugin, 1, link.source, link.target)) {
      link.source.putLong(0, 77);
      await(
          await(() -> other.send.isend(source, 8, 0, one.sourceMemory)),
          await(() -> other.receive.irecv(target, 8, 0, one.targetMemory)));
      assertThat(link.target.getLong(0)).isEqualTo(77);
    }
  }

  @Test
  void shouldRefuseGroupsThatCannotBe() {
    long[] addresses = {target, target, target};
    long[] sizes = {8, 8, 8};
    NetMemory[] memories = {to, to, to};
    int[] tags = {1, 1, 2};
    assertRefused(() -> link.receive.irecv(3, addresses, sizes, tags, memories), "n=3");
    assertRefused(() -> link.receive.irecv(0, addresses, sizes, tags, memories), "n=0");
    assertRefused(() -> link.receive.irecv(2, addresses, sizes, tags, memories), "tag=1");
    assertRefused(() -> link.receive.iflush(3, addresses, sizes, memories), "n=3");
  }

  @Test
  void shouldFailAReceiveThatIsTooSmall() {
    NetRequest receive = receive(8);
    assertThat(send(64)).isNotNull();
    assertRefused(() -> Awaitility.await().until(receive::test));
  }

  @Test
  void shouldFlushReceivedData() {
    NetRequest flush =
        link.receive.iflush(1, new long[] {target}, new long[] {8}, new NetMemory[] {to});
    Awaitility.await().until(flush::test);
  }

  @Test
  void shouldRefuseUseAfterCloseAndAfterDone() {
    NetRequest receive = receive(8);
    NetRequest send = send(8);
    assertRefused(() -> receive.size(0), "in flight");
    await(send, receive);
    assertRefused(receive::test, "over already");
    assertRefused(() -> receive.size(2), "no index");
    NetRequest lost = receive(8);
    link.receive.close();
    assertRefused(lost::test, "closed");
    assertRefused(() -> receive(8), "closed");
    assertRefused(() -> link.receive.register(1, 1, PointerType.HOST), "closed");
    plugin.close();
    assertRefused(() -> send(8), "closed");
    assertRefused(() -> plugin.listen(0), "closed");
  }

  @Test
  void shouldRefuseDevicesHandlesAndPointersThatCannotBe() {
    assertRefused(() -> plugin.listen(2), "device=2");
    assertRefused(() -> plugin.properties(-1), "device=-1");
    assertRefused(() -> plugin.connect(0, null), "handle=null");
    assertRefused(() -> link.send.register(1, 1, PointerType.CUDA), "type=CUDA");
    assertRefused(() -> link.send.register(1, 1, PointerType.DMABUF), "type=DMABUF");
    assertRefused(() -> link.send.register(1, -1, PointerType.HOST), "size=-1");
    assertRefused(() -> link.send.registerDmaBuf(1, 1, PointerType.CUDA, 0, 3), "type=DMABUF");
  }
}

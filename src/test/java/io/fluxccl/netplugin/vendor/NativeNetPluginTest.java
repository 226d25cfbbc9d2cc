// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.vendor;

import static io.fluxccl.netplugin.NetLink.address;
import static io.fluxccl.netplugin.NetLink.await;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import ch.qos.logback.classic.Level;
import ch.qos.logback.classic.Logger;
import ch.qos.logback.classic.spi.ILoggingEvent;
import ch.qos.logback.core.read.ListAppender;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.RemoteFailure;
import io.fluxccl.TransportFailure;
import io.fluxccl.netplugin.NetHandle;
import io.fluxccl.netplugin.NetLink;
import io.fluxccl.netplugin.NetListenComm;
import io.fluxccl.netplugin.NetMemory;
import io.fluxccl.netplugin.NetProperties;
import io.fluxccl.netplugin.NetRequest;
import io.fluxccl.netplugin.PointerType;
import io.fluxccl.testing.AllocatedBytes;
import io.fluxccl.testing.RequiresNativeLibrary;
import io.fluxccl.testing.TestNet;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import org.slf4j.LoggerFactory;

@RequiresNativeLibrary
@Timeout(120)
@Tag("jdk")
class NativeNetPluginTest {
  private static final int LARGEST = 256 << 20;
  private static final int IN_FLIGHT = 8;

  @TempDir private static Path folder;

  /** As large as the largest message; made once, because that takes its time. */
  private static ByteBuffer source;

  private static ByteBuffer target;

  private static void allocate() {
    if (source == null) {
      target = NetLink.memory(LARGEST);
      source = NetLink.memory(LARGEST);
      Random random = new Random(5);
      for (int at = 0; at < LARGEST; at += Long.BYTES) {
        source.putLong(at, random.nextLong());
      }
    }
  }

  private static NativeNetPlugin open(int version, String... faults) throws Exception {
    return NativeNetPlugin.open(TestNet.library(folder, version, faults).toString());
  }

  @ParameterizedTest
  @ValueSource(ints = {6, 7, 8, 9, 10, 11, 12})
  void shouldMoveMessagesOfAllSizesUnderEachVersion(int version) throws Exception {
    allocate();
    try (NativeNetPlugin plugin = open(version);
        NetLink link = new NetLink(plugin, 0);
        NetMemory from = link.sender.register(address(source), LARGEST, PointerType.HOST);
        NetMemory to = link.receiver.register(address(target), LARGEST, PointerType.HOST)) {
      assertThat(plugin.version()).isEqualTo(version);
      for (int size : new int[] {0, 1, 7, 4096, (1 << 20) + 3, LARGEST}) {
        target.put(0, (byte) ~source.get(0));
        NetRequest receive = await(() -> link.receiver.irecv(address(target), LARGEST, 0, to));
        NetRequest send = await(() -> link.sender.isend(address(source), size, 0, from));
        NetLink.finish(send, receive);
        assertThat(send.size(0)).isEqualTo(size);
        assertThat(receive.size(0)).isEqualTo(size);
        assertThat(target.slice(0, size).mismatch(source.slice(0, size))).isEqualTo(-1);
      }
    }
  }

  @ParameterizedTest
  @ValueSource(ints = {6, 7, 8, 9, 10, 11, 12})
  void shouldKeepEightMessagesInFlightUnderEachVersion(int version) throws Exception {
    int size = 256 << 10;
    int messages = 64;
    allocate();
    try (NativeNetPlugin plugin = open(version);
        NetLink link = new NetLink(plugin, 1);
        NetMemory from = link.sender.register(address(source), LARGEST, PointerType.HOST);
        NetMemory to = link.receiver.register(address(target), LARGEST, PointerType.HOST)) {
      target.slice(0, size * messages).put(new byte[size * messages]);
      NetRequest[] sends = new NetRequest[messages];
      NetRequest[] receives = new NetRequest[messages];
      int posted = 0;
      for (int done = 0; done < messages; done++) {
        for (; posted < messages && posted < done + IN_FLIGHT; posted++) {
          long at = (long) posted * size;
          receives[posted] = await(() -> link.receiver.irecv(address(target) + at, size, 0, to));
          sends[posted] = await(() -> link.sender.isend(address(source) + at, size, 0, from));
        }
        NetLink.finish(sends[done], receives[done]);
      }
      int all = size * messages;
      assertThat(target.slice(0, all).mismatch(source.slice(0, all))).isEqualTo(-1);
    }
  }

  @ParameterizedTest
  @ValueSource(ints = {6, 8, 9, 12})
  void shouldReceiveAGroupByItsTags(int version) throws Exception {
    allocate();
    try (NativeNetPlugin plugin = open(version);
        NetLink link = new NetLink(plugin, 0);
        NetMemory from = link.sender.register(address(source), LARGEST, PointerType.HOST);
        NetMemory to = link.receiver.register(address(target), LARGEST, PointerType.HOST)) {
      long[] places = {address(target), address(target) + 1000, address(target) + 2000};
      NetRequest group =
          await(
              () ->
                  link.receiver.irecv(
                      3,
                      places,
                      new long[] {500, 600, 700},
                      new int[] {7, 8, 9},
                      new NetMemory[] {to, to, to}));
      List<NetRequest> sends = new ArrayList<>();
      for (int tag : new int[] {9, 7, 8}) {
        int size = tag * 10;
        sends.add(await(() -> link.sender.isend(address(source) + tag, size, tag, from)));
      }
      for (NetRequest send : sends) {
        Awaitility.await().until(send::test);
      }
      Awaitility.await().until(group::test);
      for (int i = 0; i < 3; i++) {
        int tag = 7 + i;
        assertThat(group.size(i)).isEqualTo(tag * 10);
        assertThat(target.slice(1000 * i, tag * 10)).isEqualTo(source.slice(tag, tag * 10));
      }
    }
  }

  @Test
  void shouldReturnPropertiesOfEachDevice() throws Exception {
    try (NativeNetPlugin plugin = open(12, "POINTERS=7")) {
      assertThat(plugin.name()).isEqualTo("testnet");
      assertThat(plugin.devices()).isEqualTo(2);
      assertThat(plugin.maxRequests()).isEqualTo(32);
      NetProperties first = plugin.properties(0);
      assertThat(first)
          .isEqualTo(
              new NetProperties(
                  "test0",
                  null,
                  40,
                  java.util.Set.of(PointerType.values()),
                  false,
                  true,
                  10000,
                  1,
                  1.5f,
                  1024,
                  8,
                  Integer.MAX_VALUE));
      assertThat(plugin.properties(1).pciPath()).isEqualTo("/sys/class/net/lo");
      assertThat(plugin.properties(1).regIsGlobal()).isTrue();
    }
    try (NativeNetPlugin plugin = open(6)) {
      assertThat(plugin.maxRequests()).isEqualTo(8);
      assertThat(plugin.properties(1).speedMbps()).isEqualTo(10000);
      assertThat(plugin.properties(1).maxBytes()).isEqualTo(1 << 30);
      assertThat(plugin.properties(1).regIsGlobal()).isFalse();
    }
  }

  @Test
  void shouldTakeTheNewestVersionOfALibrary() throws Exception {
    Path library = TestNet.library(folder, List.of(8, 11, 6));
    try (NativeNetPlugin plugin = NativeNetPlugin.open(library.toString())) {
      assertThat(plugin.version()).isEqualTo(11);
      assertThat(plugin).hasToString("testnet (" + library + ", v11)");
    }
  }

  @Test
  void shouldSearchAsNcclDoes() {
    assertThat(PluginSearch.candidates(null)).containsExactly("libnccl-net.so");
    assertThat(PluginSearch.candidates("")).containsExactly("libnccl-net.so");
    assertThat(PluginSearch.candidates("ofi")).containsExactly("ofi", "libnccl-net-ofi.so");
    assertThat(PluginSearch.candidates("libmy.so")).containsExactly("libmy.so");
    assertThat(PluginSearch.candidates("/opt/a.so, x"))
        .containsExactly("/opt/a.so", "x", "libnccl-net-x.so");
    assertThatThrownBy(() -> NativeNetPlugin.open("no-such-net"))
        .isInstanceOf(TransportFailure.class)
        .hasMessageContaining("libnccl-net-no-such-net.so: ")
        .hasMessageContaining("NCCL_NET_PLUGIN");
  }

  @Test
  void shouldRefuseALibraryThatIsNoPlugin() {
    assertThatThrownBy(() -> NativeNetPlugin.open("libc.so.6"))
        .isInstanceOf(TransportFailure.class)
        .hasMessageContaining("no complete ncclNetPlugin_v6 to _v12");
  }

  @Test
  void shouldReportAFailedInitAndAPluginWithoutDevices() throws Exception {
    Path refusing = TestNet.library(folder, 9, "INIT_CODE=2");
    assertThatThrownBy(() -> NativeNetPlugin.open(refusing.toString()))
        .isInstanceOf(TransportFailure.class)
        .hasMessageContaining("init failed with system error (2)")
        .hasMessageContaining(refusing.toString());
    Path empty = TestNet.library(folder, 11, "DEVICES=0");
    assertThatThrownBy(() -> NativeNetPlugin.open(empty.toString()))
        .isInstanceOf(TransportFailure.class)
        .hasMessageContaining("has no devices (0)");
    assertThat(isLoaded(refusing) || isLoaded(empty)).isFalse();
  }

  @Test
  void shouldSendFromMemoryThatADmaBufDescribes() throws Exception {
    allocate();
    try (NativeNetPlugin plugin = open(11, "POINTERS=7");
        NetLink link = new NetLink(plugin, 0);
        NetMemory from = link.sender.registerDmaBuf(address(source), 64, PointerType.HOST, 0, 1);
        NetMemory to = link.receiver.register(address(target), 64, PointerType.HOST)) {
      NetLink.finish(
          await(() -> link.sender.isend(address(source), 64, 0, from)),
          await(() -> link.receiver.irecv(address(target), 64, 0, to)));
      assertThat(target.slice(0, 64)).isEqualTo(source.slice(0, 64));
    }
  }

  @ParameterizedTest
  @ValueSource(ints = {6, 11})
  void shouldKeepTheSignalsThatALibraryTakesWhenItIsLoaded(int version) throws Exception {
    try (NativeNetPlugin plugin = open(version, "TAKE_SIGNALS=1");
        NetListenComm listener = plugin.listen(0)) {
      assertThat(listener.handle()).isNotEmpty();
    }
  }

  @Test
  void shouldTryAgainWhenTenThousandRequestsAreNull() throws Exception {
    allocate();
    try (NativeNetPlugin plugin = open(11, "NULL_REQUESTS=10000");
        NetLink link = new NetLink(plugin, 0);
        NetMemory from = link.sender.register(address(source), 64, PointerType.HOST);
        NetMemory to = link.receiver.register(address(target), 64, PointerType.HOST)) {
      int nulls = 0;
      NetRequest send = null;
      while ((send = link.sender.isend(address(source), 64, 0, from)) == null) {
        nulls++;
      }
      assertThat(nulls).isEqualTo(10000);
      NetLink.finish(send, await(() -> link.receiver.irecv(address(target), 64, 0, to)));
      assertThat(target.slice(0, 64)).isEqualTo(source.slice(0, 64));
    }
  }

  @Test
  void shouldFailWithATypedErrorWhenThePluginFailsInTheMiddle() throws Exception {
    assertThat(failureOf("FAIL_CODE=2")).isInstanceOf(TransportFailure.class);
    assertThat(failureOf("FAIL_CODE=6")).isInstanceOf(RemoteFailure.class);
    assertThat(failureOf("FAIL_CODE=5")).isInstanceOf(InvalidUsage.class);
    assertThat(failureOf("FAIL_CODE=99")).isInstanceOf(TransportFailure.class);
  }

  private static FluxCclException failureOf(String code) throws Exception {
    allocate();
    try (NativeNetPlugin plugin = open(10, "FAIL_AFTER=3", code);
        NetLink link = new NetLink(plugin, 0);
        NetMemory from = link.sender.register(address(source), 64, PointerType.HOST);
        NetMemory to = link.receiver.register(address(target), 64, PointerType.HOST)) {
      for (int i = 0; i < 10; i++) {
        NetLink.finish(
            await(() -> link.sender.isend(address(source), 64, 0, from)),
            await(() -> link.receiver.irecv(address(target), 64, 0, to)));
      }
    } catch (FluxCclException e) {
      assertThat(e).hasMessageContaining("testnet").hasMessageContaining("failed with");
      return e;
    }
    return null;
  }

  @Test
  void shouldReturnSizeZeroIfThePluginReportsNoSizes() throws Exception {
    allocate();
    try (NativeNetPlugin plugin = open(8, "NO_SIZES=1");
        NetLink link = new NetLink(plugin, 0);
        NetMemory from = link.sender.register(address(source), 64, PointerType.HOST);
        NetMemory to = link.receiver.register(address(target), 64, PointerType.HOST)) {
      NetRequest receive = await(() -> link.receiver.irecv(address(target), 64, 0, to));
      NetLink.finish(await(() -> link.sender.isend(address(source), 64, 0, from)), receive);
      assertThat(receive.size(0)).isZero();
    }
  }

  @Test
  void shouldFailWhenThePeerIsGone() throws Exception {
    allocate();
    try (NativeNetPlugin plugin = open(11);
        NetLink link = new NetLink(plugin, 0);
        NetMemory to = link.receiver.register(address(target), 64, PointerType.HOST)) {
      NetRequest receive = await(() -> link.receiver.irecv(address(target), 64, 0, to));
      link.sender.close();
      assertThatThrownBy(() -> Awaitility.await().until(receive::test))
          .isInstanceOf(RemoteFailure.class);
    }
  }

  @Test
  void shouldAllocateNothingPerOperation() throws Exception {
    allocate();
    for (int version : new int[] {6, 12}) {
      try (NativeNetPlugin plugin = open(version);
          NetLink link = new NetLink(plugin, 0);
          NetMemory from = link.sender.register(address(source), 4096, PointerType.HOST);
          NetMemory to = link.receiver.register(address(target), 4096, PointerType.HOST)) {
        long[] addresses = {address(target), address(target) + 2048};
        long[] sizes = {2048, 2048};
        int[] tags = {0, 1};
        NetMemory[] memories = {to, to};
        long allocated =
            AllocatedBytes.least(
                40,
                () -> {
                  for (int i = 0; i < 500; i++) {
                    NetRequest one = link.receiver.irecv(address(target), 4096, 0, to);
                    NetRequest sent = link.sender.isend(address(source), 4096, 0, from);
                    while (!sent.test()) {}
                    while (!one.test()) {}
                    NetRequest group = link.receiver.irecv(2, addresses, sizes, tags, memories);
                    sent = link.sender.isend(address(source), 64, 1, from);
                    while (!sent.test()) {}
                    sent = link.sender.isend(address(source), 64, 0, from);
                    while (!sent.test()) {}
                    while (!group.test()) {}
                  }
                });
        assertThat(allocated).as("bytes for 2500 operations of v" + version).isZero();
      }
    }
  }

  @Test
  void shouldLogLinesOfThePlugin() throws Exception {
    Logger logger = (Logger) LoggerFactory.getLogger(NativeNetPlugin.class);
    ListAppender<ILoggingEvent> lines = new ListAppender<>();
    lines.list = new java.util.concurrent.CopyOnWriteArrayList<>();
    lines.start();
    logger.addAppender(lines);
    logger.setLevel(Level.DEBUG);
    logger.setAdditive(false);
    try {
      try (NativeNetPlugin plugin = open(11, "LOG_THREAD=1")) {
        assertThat(plugin.devices()).isEqualTo(2);
      }
      Awaitility.await().atMost(60, TimeUnit.SECONDS).until(() -> own(lines.list).size() == 6);
      assertThat(own(lines.list))
          .containsExactly(
              "INFO testnet: testnet version 11 (test_net.c)",
              "WARN testnet: init of v11: warn 7 2.5 (test_net.c)",
              "DEBUG testnet: an info line (test_net.c)",
              "WARN testnet: thread line 0 of three (test_net.c)",
              "WARN testnet: thread line 1 of three (test_net.c)",
              "WARN testnet: thread line 2 of three (test_net.c)");
    } finally {
      logger.detachAppender(lines);
      logger.setAdditive(true);
      logger.setLevel(null);
    }
  }

  /**
   * Returns the lines of the plugin that was loaded last; lines of an earlier one may be delayed.
   */
  private static List<String> own(List<ILoggingEvent> lines) {
    List<String> texts =
        lines.stream()
            .map(line -> line.getLevel() + " " + line.getFormattedMessage())
            .map(line -> line.replaceFirst(":\\d+\\)", ")"))
            .toList();
    int start = texts.lastIndexOf("INFO testnet: testnet version 11 (test_net.c)");
    return start < 0 ? List.of() : texts.subList(start, texts.size());
  }

  @Test
  void shouldUnloadAndLoadAgain() throws Exception {
    Path library = TestNet.library(folder, 11, "GROUP=7");
    for (int round = 0; round < 20; round++) {
      try (NativeNetPlugin plugin = NativeNetPlugin.open(library.toString());
          NetLink link = new NetLink(plugin, 0)) {
        assertThat(link.sender.device()).isZero();
        assertThat(isLoaded(library)).isTrue();
      }
      assertThat(isLoaded(library)).isFalse();
    }
    NativeNetPlugin.open(library.toString(), true).close();
    assertThat(isLoaded(library)).isTrue();
  }

  private static boolean isLoaded(Path library) throws Exception {
    return Files.readString(Path.of("/proc/self/maps")).contains(library.toString());
  }

  @Test
  void shouldCloseOpenConnectionsWithThePlugin() throws Exception {
    NativeNetPlugin plugin = open(11);
    NetLink link = new NetLink(plugin, 0);
    NetMemory memory = link.sender.register(address(NetLink.memory(64)), 64, PointerType.HOST);
    plugin.close();
    plugin.close();
    assertThatThrownBy(() -> link.sender.isend(1, 1, 0, memory)).isInstanceOf(InvalidUsage.class);
    assertThatThrownBy(() -> plugin.listen(0))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContaining("closed");
    memory.close();
    link.close();
  }

  @Test
  void shouldRefuseAHandleThatIsNotItsOwn() throws Exception {
    try (NativeNetPlugin plugin = open(7)) {
      assertThatThrownBy(() -> plugin.connect(0, new NetHandle(new byte[] {1, 2, 3})))
          .isInstanceOf(InvalidUsage.class)
          .hasMessageContaining("connect failed with invalid usage");
    }
  }
}

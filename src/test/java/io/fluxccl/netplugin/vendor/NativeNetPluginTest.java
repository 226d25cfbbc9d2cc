// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.vendor;

import static io.fluxccl.netplugin.MessageLink.address;
import static io.fluxccl.netplugin.MessageLink.await;
import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static io.fluxccl.testing.FailureAssertions.assertThrows;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.catchThrowable;

import ch.qos.logback.classic.Level;
import ch.qos.logback.classic.Logger;
import ch.qos.logback.classic.spi.ILoggingEvent;
import ch.qos.logback.core.read.ListAppender;
import io.fluxccl.ErrorCode;
import io.fluxccl.FluxCclException;
import io.fluxccl.RemoteFailure;
import io.fluxccl.TransportFailure;
import io.fluxccl.netplugin.MessageLink;
import io.fluxccl.netplugin.NetHandle;
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
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.Deque;
import java.util.List;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
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

  /** The objects that the test has opened, the latest first. */
  private final Deque<AutoCloseable> opened = new ArrayDeque<>();

  @AfterEach
  void close() throws Exception {
    for (AutoCloseable each : opened) {
      each.close();
    }
  }

  private NativeNetPlugin open(int version, String... faults) throws Exception {
    return opened(NativeNetPlugin.open(TestNet.library(folder, version, faults).toString()));
  }

  private <T extends AutoCloseable> T opened(T object) {
    opened.push(object);
    return object;
  }

  private MessageLink connect(NativeNetPlugin plugin, int device) {
    if (source == null) {
      target = MessageLink.memory(LARGEST);
      source = MessageLink.memory(LARGEST);
      Random random = new Random(5);
      for (int at = 0; at < LARGEST; at += Long.BYTES) {
        source.putLong(at, random.nextLong());
      }
    }
    return opened(new MessageLink(plugin, device, source, target));
  }

  private static void assertReceived(int size) {
    assertThat(target.slice(0, size).mismatch(source.slice(0, size))).isEqualTo(-1);
  }

  @ParameterizedTest
  @ValueSource(ints = {6, 7, 8, 9, 10, 11, 12})
  void shouldMoveMessagesOfAllSizesUnderEachVersion(int version) throws Exception {
    NativeNetPlugin plugin = open(version);
    MessageLink link = connect(plugin, 0);
    assertThat(plugin.version()).isEqualTo(version);
    for (int size : new int[] {0, 1, 7, 4096, (1 << 20) + 3, LARGEST}) {
      target.put(0, (byte) ~source.get(0));
      NetRequest receive = link.irecv(0, LARGEST);
      NetRequest send = link.isend(0, size);
      await(send, receive);
      assertThat(send.size(0)).isEqualTo(size);
      assertThat(receive.size(0)).isEqualTo(size);
      assertReceived(size);
    }
  }

  @ParameterizedTest
  @ValueSource(ints = {6, 7, 8, 9, 10, 11, 12})
  void shouldKeepEightMessagesInFlightUnderEachVersion(int version) throws Exception {
    int[] sizes = new int[IN_FLIGHT];
    Arrays.fill(sizes, 256 << 10);
    ByteBuffer from = MessageLink.memory(IN_FLIGHT * sizes[0]);
    ByteBuffer to = MessageLink.memory(IN_FLIGHT * sizes[0]);
    opened(new MessageLink(open(version), 1, from, to)).moveAll(sizes, 8);
  }

  @ParameterizedTest
  @ValueSource(ints = {6, 8, 9, 12})
  void shouldReceiveAGroupByItsTags(int version) throws Exception {
    MessageLink link = connect(open(version), 0);
    long[] places = {address(target), address(target) + 1000, address(target) + 2000};
    long[] sizes = {500, 600, 700};
    int[] tags = {7, 8, 9};
    NetMemory to = link.targetMemory;
    NetMemory[] memories = {to, to, to};
    NetRequest group = await(() -> link.receive.irecv(3, places, sizes, tags, memories));
    await(link.isend(9, 90, 9), link.isend(7, 70, 7), link.isend(8, 80, 8), group);
    for (int i = 0; i < 3; i++) {
      int tag = tags[i];
      assertThat(group.size(i)).isEqualTo(tag * 10);
      assertThat(target.slice(1000 * i, tag * 10)).isEqualTo(source.slice(tag, tag * 10));
    }
  }

  @Test
  void shouldReturnPropertiesOfEachDevice() throws Exception {
    NativeNetPlugin newest = open(12, "POINTERS=7");
    assertThat(newest.name()).isEqualTo("testnet");
    assertThat(newest.devices()).isEqualTo(2);
    assertThat(newest.maxRequests()).isEqualTo(32);
    Set<PointerType> pointers = Set.of(PointerType.values());
    assertThat(newest.properties(0))
        .isEqualTo(
            new NetProperties(
                "test0", null, 40, pointers, false, true, 10000, 1, 1.5f, 1024, 8, 0x7fff_ffff));
    assertThat(newest.properties(1).pciPath()).isEqualTo("/sys/class/net/lo");
    assertThat(newest.properties(1).regIsGlobal()).isTrue();
    NativeNetPlugin oldest = open(6);
    assertThat(oldest.maxRequests()).isEqualTo(8);
    assertThat(oldest.properties(1).speedMbps()).isEqualTo(10000);
    assertThat(oldest.properties(1).maxBytes()).isEqualTo(1 << 30);
    assertThat(oldest.properties(1).regIsGlobal()).isFalse();
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
    assertThrows(
        TransportFailure.class,
        () -> NativeNetPlugin.open("no-such-net"),
        "libnccl-net-no-such-net.so: ",
        "NCCL_NET_PLUGIN");
  }

  @Test
  void shouldRefuseALibraryThatIsNoPlugin() {
    assertThrows(
        TransportFailure.class,
        () -> NativeNetPlugin.open("libc.so.6"),
        "no complete ncclNetPlugin_v6 to _v12");
  }

  @Test
  void shouldReportAFailedInitAndAPluginWithoutDevices() throws Exception {
    Path refusing = TestNet.library(folder, 9, "INIT_CODE=2");
    assertThrows(
        TransportFailure.class,
        () -> NativeNetPlugin.open(refusing.toString()),
        "init failed with system error (2)",
        refusing.toString());
    Path empty = TestNet.library(folder, 11, "DEVICES=0");
    assertThrows(
        TransportFailure.class, () -> NativeNetPlugin.open(empty.toString()), "has no devices (0)");
    assertThat(isLoaded(refusing) || isLoaded(empty)).isFalse();
  }

  @Test
  void shouldSendFromMemoryThatADmaBufDescribes() throws Exception {
    MessageLink link = connect(open(11, "POINTERS=7"), 0);
    NetMemory from = link.send.registerDmaBuf(address(source), 64, PointerType.HOST, 0, 1);
    target.put(0, (byte) ~source.get(0));
    await(await(() -> link.send.isend(address(source), 64, 0, from)), link.irecv(0, 64));
    assertReceived(64);
    from.close();
  }

  @ParameterizedTest
  @ValueSource(ints = {6, 11})
  void shouldKeepTheSignalsThatALibraryTakesWhenItIsLoaded(int version) throws Exception {
    NetListenComm listener = opened(open(version, "TAKE_SIGNALS=1").listen(0));
    assertThat(listener.handle()).isNotEmpty();
  }

  @Test
  void shouldTryAgainWhenTenThousandRequestsAreNull() throws Exception {
    MessageLink link = connect(open(11, "NULL_REQUESTS=10000"), 0);
    int nulls = 0;
    NetRequest send = null;
    while ((send = link.send.isend(address(source), 64, 0, link.sourceMemory)) == null) {
      nulls++;
    }
    assertThat(nulls).isEqualTo(10000);
    await(send, link.irecv(0, 64));
    assertReceived(64);
  }

  @ParameterizedTest
  @CsvSource({
    "2, TRANSPORT_FAILURE",
    "6, REMOTE_FAILURE",
    "5, INVALID_USAGE",
    "99, TRANSPORT_FAILURE"
  })
  void shouldFailWithATypedErrorWhenThePluginFailsInTheMiddle(int code, ErrorCode error)
      throws Exception {
    MessageLink link = connect(open(10, "FAIL_AFTER=3", "FAIL_CODE=" + code), 0);
    Throwable failure =
        catchThrowable(
            () -> {
              for (int i = 0; i < 10; i++) {
                link.move(64);
              }
            });
    assertThat(failure).hasMessageContaining("testnet").hasMessageContaining("failed with");
    assertThat(FluxCclException.from(failure).code()).isEqualTo(error);
  }

  @Test
  void shouldReturnSizeZeroIfThePluginReportsNoSizes() throws Exception {
    MessageLink link = connect(open(8, "NO_SIZES=1"), 0);
    assertThat(link.move(64)).isZero();
  }

  @Test
  void shouldFailWhenThePeerIsGone() throws Exception {
    MessageLink link = connect(open(11), 0);
    NetRequest receive = link.irecv(0, 64);
    link.send.close();
    assertThat(MessageLink.failureOf(receive)).isInstanceOf(RemoteFailure.class);
  }

  @ParameterizedTest
  @ValueSource(ints = {6, 12})
  void shouldAllocateNothingPerOperation(int version) throws Exception {
    MessageLink link = connect(open(version), 0);
    long[] addresses = {address(target), address(target) + 2048};
    long[] sizes = {2048, 2048};
    int[] tags = {0, 1};
    NetMemory[] memories = {link.targetMemory, link.targetMemory};
    long allocated =
        AllocatedBytes.least(
            1,
            () -> {
              for (int i = 0; i < 500; i++) {
                NetRequest one = link.irecv(0, 4096);
                NetRequest sent = link.isend(0, 4096);
                while (!sent.test()) {}
                while (!one.test()) {}
                NetRequest group = link.receive.irecv(2, addresses, sizes, tags, memories);
                for (int tag = 1; tag >= 0; tag--) {
                  sent = link.isend(0, 64, tag);
                  while (!sent.test()) {}
                }
                while (!group.test()) {}
              }
            });
    assertThat(allocated).as("bytes for 2500 operations of v" + version).isZero();
  }

  @Test
  void shouldLogLinesOfThePlugin() throws Exception {
    Logger logger = (Logger) LoggerFactory.getLogger(NativeNetPlugin.class);
    ListAppender<ILoggingEvent> lines = new ListAppender<>();
    lines.list = new CopyOnWriteArrayList<>();
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
          MessageLink link = new MessageLink(plugin, plugin, 64)) {
        assertThat(link.send.device()).isZero();
        assertThat(isLoaded(library)).isTrue();
      }
      assertThat(isLoaded(library)).isFalse();
    }
  }

  private static boolean isLoaded(Path library) throws Exception {
    return Files.readString(Path.of("/proc/self/maps")).contains(library.toString());
  }

  @Test
  void shouldCloseOpenConnectionsWithThePlugin() throws Exception {
    NativeNetPlugin plugin = open(11);
    MessageLink link = connect(plugin, 0);
    plugin.close();
    plugin.close();
    assertRefused(() -> link.isend(0, 1));
    assertRefused(() -> plugin.listen(0), "closed");
    link.sourceMemory.close();
    link.close();
  }

  @Test
  void shouldRefuseAHandleThatIsNotItsOwn() throws Exception {
    NativeNetPlugin plugin = open(7);
    assertRefused(
        () -> plugin.connect(0, new NetHandle(new byte[] {1, 2, 3})),
        "connect failed with invalid usage");
  }
}

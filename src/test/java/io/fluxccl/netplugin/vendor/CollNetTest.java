// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.vendor;

import static io.fluxccl.netplugin.MessageLink.address;
import static io.fluxccl.netplugin.MessageLink.await;
import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static io.fluxccl.testing.FailureAssertions.assertThrows;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.netplugin.MessageLink;
import io.fluxccl.netplugin.NetMemory;
import io.fluxccl.netplugin.NetRequest;
import io.fluxccl.netplugin.PointerType;
import io.fluxccl.testing.RequiresNativeLibrary;
import io.fluxccl.testing.TestNet;
import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

@RequiresNativeLibrary
@Timeout(60)
class CollNetTest {
  private static final int COUNT = 1000;
  private static final int BYTES = COUNT * Float.BYTES;

  @TempDir private static Path folder;

  @ParameterizedTest
  @ValueSource(ints = {6, 7, 8, 9, 10, 11, 12})
  void shouldReduceUnderEachVersion(int version) throws Exception {
    Path library = TestNet.collectiveLibrary(folder, version);
    int ranks = 3;
    try (NativeNetPlugin plugin = NativeNetPlugin.open(library.toString())) {
      CollNetPlugin coll = plugin.collNet().orElseThrow();
      assertThat(plugin.collNet()).hasValue(coll);
      assertThat(coll.name()).isEqualTo("testcoll");
      assertThat(coll.properties(0).name()).isEqualTo("coll0");
      assertThat(coll.reduces(DataType.FLOAT32, ReduceOp.SUM)).isTrue();
      assertThat(coll.reduces(DataType.FLOAT64, ReduceOp.SUM)).isFalse();
      assertThat(coll.reduces(DataType.FLOAT32, ReduceOp.MAX)).isFalse();

      List<CollNetListener> listeners = new ArrayList<>();
      for (int rank = 0; rank < ranks; rank++) {
        listeners.add(coll.listen(0));
      }
      List<byte[]> handles = listeners.stream().map(CollNetListener::handle).toList();
      List<CollNetComm> comms = new ArrayList<>();
      List<ByteBuffer> sources = new ArrayList<>();
      List<ByteBuffer> targets = new ArrayList<>();
      for (int rank = 0; rank < ranks; rank++) {
        comms.add(coll.connect(handles, rank, listeners.get(rank)));
        sources.add(MessageLink.memory(BYTES));
        targets.add(MessageLink.memory(BYTES));
        for (int i = 0; i < COUNT; i++) {
          sources.get(rank).putFloat(i * Float.BYTES, (rank + 1) * i);
        }
      }
      for (int round = 0; round < 2; round++) {
        List<NetRequest> requests = new ArrayList<>();
        for (int rank = 0; rank < ranks; rank++) {
          requests.add(reduce(comms.get(rank), sources.get(rank), targets.get(rank)));
        }
        for (NetRequest request : requests) {
          assertThat(request.test()).isTrue();
          assertRefused(request::test);
        }
      }
      for (ByteBuffer target : targets) {
        for (int i = 0; i < COUNT; i++) {
          assertThat(target.getFloat(i * Float.BYTES)).isEqualTo(6f * i);
        }
      }
      comms.forEach(CollNetComm::close);
      listeners.forEach(CollNetListener::close);
    }
  }

  private static NetRequest reduce(CollNetComm comm, ByteBuffer source, ByteBuffer target) {
    NetMemory from = comm.register(address(source), BYTES, PointerType.HOST);
    NetMemory to = comm.register(address(target), BYTES, PointerType.HOST);
    assertThat(comm.iflush(address(target), 8, to)).isNull();
    return await(
        () ->
            comm.iallreduce(
                address(source), address(target), COUNT, DataType.FLOAT32, ReduceOp.SUM, from, to));
  }

  @Test
  void shouldRefuseInvalidArgumentsAndClosedObjects() throws Exception {
    NativeNetPlugin plugin = NativeNetPlugin.open(TestNet.collectiveLibrary(folder, 11).toString());
    CollNetPlugin coll = plugin.collNet().orElseThrow();
    CollNetListener listener = coll.listen(0);
    List<byte[]> handles = List.of(listener.handle());
    ByteBuffer memory = MessageLink.memory(64);
    assertRefused(() -> coll.listen(1), "device=1");
    assertRefused(() -> coll.connect(handles, 1, listener), "rank=1");
    CollNetComm comm = coll.connect(handles, 0, listener);
    assertRefused(() -> comm.register(1, 1, PointerType.CUDA), "type=CUDA");
    NetMemory registered = comm.register(address(memory), 64, PointerType.HOST);
    long at = address(memory);
    DataType type = DataType.FLOAT32;
    ReduceOp op = ReduceOp.SUM;
    assertRefused(() -> comm.iallreduce(at, at, 17, type, op, registered, registered), "size=68");
    assertRefused(() -> comm.iallreduce(at, at, 0, type, op, registered, registered), "count=0");
    assertRefused(() -> comm.iallreduce(at, at, 1, type, op, registered, null), "not registered");
    registered.close();
    assertRefused(() -> comm.iflush(at, 1, registered), "not registered");
    plugin.close();
    assertRefused(() -> comm.iflush(at, 1, registered), "closed");
    assertRefused(() -> coll.listen(0), "closed");
    assertRefused(() -> coll.connect(handles, 0, listener), "closed");
  }

  @Test
  void shouldKeepAListenerThatAConnectIsIn() throws Exception {
    Path library = TestNet.collectiveLibrary(folder, 11, "CONNECT_MS=5000");
    VendorPlugin plugin =
        VendorPlugin.open(PluginSearch.open(library.toString()), Duration.ofMillis(50));
    CollNetPlugin coll = plugin.collNet();
    CollNetListener listener = coll.listen(0);
    CompletableFuture<CollNetComm> joining =
        CompletableFuture.supplyAsync(() -> coll.connect(List.of(listener.handle()), 0, listener));
    Awaitility.await()
        .pollInterval(Duration.ofMillis(1))
        .until(
            () ->
                Thread.getAllStackTraces().values().stream()
                    .anyMatch(
                        frames ->
                            frames.length > 0
                                && frames[0].getMethodName().equals("connect")
                                && frames[0].getClassName().equals(CollNetCalls.class.getName())));
    assertThrows(io.fluxccl.Timeout.class, listener::close, "close of a listener of testcoll");
    joining.get(60, TimeUnit.SECONDS).close();
    listener.close();
    assertRefused(() -> coll.connect(List.of(listener.handle()), 0, listener), "closed");
    plugin.close();
  }

  @Test
  void shouldRefuseMoreThan16Plugins() throws Exception {
    String library = TestNet.collectiveLibrary(folder, 11).toString();
    List<NativeNetPlugin> plugins = new ArrayList<>();
    try {
      assertRefused(() -> openWithoutEnd(library, plugins), "16 network plugins");
      assertRefused(() -> plugins.get(0).collNet(), "16 network plugins");
    } finally {
      plugins.forEach(NativeNetPlugin::close);
    }
  }

  private static void openWithoutEnd(String library, List<NativeNetPlugin> plugins) {
    while (plugins.add(NativeNetPlugin.open(library))) {}
  }

  @Test
  void shouldBeEmptyWhereTheLibraryHasNone() throws Exception {
    try (NativeNetPlugin plugin = NativeNetPlugin.open(TestNet.library(folder, 11).toString())) {
      assertThat(plugin.collNet()).isEmpty();
    }
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.vendor;

import static io.fluxccl.netplugin.NetLink.address;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.InvalidUsage;
import io.fluxccl.netplugin.NetLink;
import io.fluxccl.netplugin.NetMemory;
import io.fluxccl.netplugin.NetRequest;
import io.fluxccl.netplugin.PointerType;
import io.fluxccl.testing.RequiresNativeLibrary;
import io.fluxccl.testing.TestNet;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** A vendor's plugin whose isend takes three seconds to return, which is taken for never. */
@RequiresNativeLibrary
@Timeout(120)
class StuckPluginTest {
  private static final Duration SHORT = Duration.ofMillis(50);

  @TempDir private static Path folder;

  @Test
  void shouldNotCloseAnObjectInACallButCloseTheOthers() throws Exception {
    Path library = TestNet.library(folder, 11, "STUCK_MS=1500");
    VendorPlugin plugin = VendorPlugin.open(PluginSearch.open(library.toString()), false, SHORT);
    NetLink link = new NetLink(plugin, 0);
    ByteBuffer source = NetLink.memory(64);
    NetMemory from = link.sender.register(address(source), 64, PointerType.HOST);
    CompletableFuture<NetRequest> call =
        CompletableFuture.supplyAsync(() -> link.sender.isend(address(source), 64, 0, from));
    Awaitility.await().until(() -> ((VendorSendComm) link.sender).gate().isInUse());

    assertThatThrownBy(plugin::close)
        .isInstanceOf(io.fluxccl.Timeout.class)
        .hasMessageContaining("close of a connection of testnet")
        .hasMessageContaining("50 ms");

    assertThat(Files.readString(Path.of("/proc/self/maps"))).contains(library.toString());
    assertThatThrownBy(() -> link.receiver.irecv(1, 1, 0, from))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContaining("is closed");
    // The call returns to an open comm: nothing that it uses was freed.
    assertThat(call.get(60, TimeUnit.SECONDS)).isNotNull();
    plugin.close();
  }
}

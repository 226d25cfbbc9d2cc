// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.vendor;

import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static io.fluxccl.testing.FailureAssertions.assertThrows;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.netplugin.MessageLink;
import io.fluxccl.netplugin.NetRequest;
import io.fluxccl.testing.RequiresNativeLibrary;
import io.fluxccl.testing.TestNet;
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
    Path library = TestNet.library(folder, 11, "STUCK_MS=5000");
    VendorPlugin plugin = VendorPlugin.open(PluginSearch.open(library.toString()), SHORT);
    MessageLink link = new MessageLink(plugin, plugin, 64);
    CompletableFuture<NetRequest> call = CompletableFuture.supplyAsync(() -> link.isend(0, 64));
    Awaitility.await().until(() -> ((VendorSendComm) link.send).gate().isInUse());
    assertRefused(() -> link.isend(0, 64), "is used by two threads at once");
    assertThrows(
        io.fluxccl.Timeout.class, plugin::close, "close of a connection of testnet", "50 ms");

    assertThat(Files.readString(Path.of("/proc/self/maps"))).contains(library.toString());
    assertRefused(() -> link.irecv(0, 1), "is closed");
    // The call returns to an open comm: nothing that it uses was freed.
    assertThat(call.get(60, TimeUnit.SECONDS)).isNotNull();
    plugin.close();
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.vendor;

import static io.fluxccl.netplugin.MessageLink.await;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.netplugin.NetHandle;
import io.fluxccl.netplugin.NetListenComm;
import io.fluxccl.netplugin.NetSendComm;
import io.fluxccl.testing.RequiresNativeLibrary;
import io.fluxccl.testing.Rounds;
import io.fluxccl.testing.TestJvms;
import io.fluxccl.testing.TestNet;
import io.fluxccl.testkit.ProcessRank;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** A vendor's plugin that is closed while another thread closes the last of its objects. */
@RequiresNativeLibrary
@Timeout(120)
class CloseDuringCloseTest {
  @TempDir private static Path folder;

  /** A sender in the loop, and what is closed another way. */
  static List<String> objects() {
    return Rounds.LONG
        ? List.of("sender", "listener", "group", "group listener")
        : List.of("sender", "group listener");
  }

  @ParameterizedTest
  @MethodSource("objects")
  void shouldUnloadTheLibraryOnlyOnceTheCloseHasReturned(String object) throws Exception {
    Path library = TestNet.collectiveLibrary(folder, 11, "CLOSE_MS=5000");
    // Another process, because to unload it earlier is the end of that one.
    try (ProcessRank child =
        TestJvms.start(CloseDuringCloseTest.class, library.toString(), object)) {
      assertThat(child.readLine()).isEqualTo("closed");
    }
  }

  /** Runs in its own process: closes the object, and the plugin during that close. */
  public static void main(String[] args) throws Exception {
    VendorPlugin plugin = VendorPlugin.open(PluginSearch.open(args[0]), Duration.ofSeconds(60));
    Thread closing = new Thread(lastOpen(plugin, args[1]));
    Awaitility.await().until(() -> !isInPlugin(closing)); // the first time takes long
    closing.start();
    Awaitility.await().pollInterval(Duration.ofMillis(1)).until(() -> isInPlugin(closing));
    plugin.close();
    closing.join();
    System.out.println("closed");
    System.exit(0);
  }

  private static boolean isInPlugin(Thread thread) {
    StackTraceElement[] frames = thread.getStackTrace();
    return frames.length > 0
        && frames[0].isNativeMethod()
        && frames[0].getMethodName().startsWith("close");
  }

  /** The close of the only object that is open. */
  private static Runnable lastOpen(VendorPlugin plugin, String object) {
    if (object.equals("sender")) {
      NetListenComm listener = plugin.listen(0);
      NetHandle handle = new NetHandle(listener.handle());
      NetSendComm sender = await(() -> plugin.connect(0, handle));
      await(listener::accept).close();
      listener.close();
      return sender::close;
    }
    if (object.equals("listener")) {
      return plugin.listen(0)::close;
    }
    CollNetPlugin coll = plugin.collNet();
    CollNetListener listener = coll.listen(0);
    if (object.equals("group")) {
      CollNetComm group = coll.connect(List.of(listener.handle()), 0, listener);
      listener.close();
      return group::close;
    }
    return listener::close;
  }
}

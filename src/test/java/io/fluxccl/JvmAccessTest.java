// SPDX-License-Identifier: Apache-2.0
package io.fluxccl;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.device.host.HostDevice;
import io.fluxccl.netplugin.tcp.TcpNetPlugin;
import io.fluxccl.netplugin.tcp.TcpOptions;
import io.fluxccl.testing.RequiresNativeLibrary;
import io.fluxccl.testing.TestJvms;
import io.fluxccl.testkit.ProcessRank;
import java.net.InetAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.function.Supplier;
import org.agrona.UnsafeApi;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.condition.EnabledForJreRange;
import org.junit.jupiter.api.condition.JRE;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

@Timeout(60)
@Tag("jdk")
class JvmAccessTest {
  @TempDir Path folder;

  private static final String MISSING =
      "add --add-opens java.base/jdk.internal.misc=ALL-UNNAMED to the java command";

  private static void assertPrintsTwice(String begin, Class<?> main, String... options) {
    try (ProcessRank child = TestJvms.withoutAccess(1, main).jvmOptions(options).startRank(0)) {
      assertThat(child.readLine()).startsWith(begin);
      assertThat(child.readLine()).startsWith(begin);
    }
  }

  private static void printTwice(Supplier<AutoCloseable> open) throws Exception {
    for (int i = 0; i < 2; i++) {
      try (AutoCloseable opened = open.get()) {
        System.out.println("opened");
      } catch (InvalidUsage e) {
        System.out.println(e.getMessage());
      }
    }
  }

  /** Opens a host device twice and prints each outcome. */
  static final class OpensTwice {
    public static void main(String[] args) throws Exception {
      printTwice(OpensTwice::open);
    }

    private static AutoCloseable open() {
      HostDevice device = HostDevice.create();
      device.allocate(8).close();
      return device;
    }
  }

  /** Opens a network without a device twice and prints each outcome. */
  static final class OpensNetworkTwice {
    public static void main(String[] args) throws Exception {
      InetAddress here = InetAddress.getLoopbackAddress();
      printTwice(() -> TcpNetPlugin.at(here, TcpOptions.DEFAULT));
    }
  }

  @Test
  @Tag("multiprocess")
  @RequiresNativeLibrary
  void shouldNeedNoJvmOptionWhereTheNativeLibraryLoads() {
    assertPrintsTwice("opened", OpensTwice.class);
  }

  @ParameterizedTest
  @Tag("multiprocess")
  @ValueSource(classes = {OpensTwice.class, OpensNetworkTwice.class})
  void shouldNameTheJvmOptionEachTimeWhereTheNativeLibraryIsMissing(Class<?> main)
      throws Exception {
    Files.writeString(folder.resolve("libfluxccl.so"), "no library");
    assertPrintsTwice(MISSING, main, "-D" + NativeLibrary.PATH_PROPERTY + "=" + folder);
  }

  @Test
  @Tag("multiprocess")
  @RequiresNativeLibrary
  @EnabledForJreRange(min = JRE.JAVA_24)
  void shouldNameTheJvmOptionsEachTimeWhereTheJvmForbidsNativeCode() {
    try (ProcessRank child =
        TestJvms.withoutAccess(1, OpensTwice.class)
            .jvmOptions("--illegal-native-access=deny")
            .startRank(0)) {
      for (int i = 0; i < 2; i++) {
        assertThat(child.readLine())
            .startsWith("add --add-opens java.base/jdk.internal.misc=ALL-UNNAMED")
            .contains("--enable-native-access=ALL-UNNAMED");
      }
    }
  }

  @Test
  @Tag("multiprocess")
  void shouldNameTheJvmOptionEachTimeWhereAgronaIsOnTheModulePath() throws Exception {
    Path jar = Path.of(UnsafeApi.class.getProtectionDomain().getCodeSource().getLocation().toURI());
    String[] options = {"--module-path=" + jar, "--add-modules=org.agrona"};
    String option = "--add-opens java.base/jdk.internal.misc=org.agrona";
    assertPrintsTwice("add " + option + " to the java command", OpensTwice.class, options);
    String[] withOption = Arrays.copyOf(options, 3);
    withOption[2] = option.replace(' ', '=');
    assertPrintsTwice("opened", OpensTwice.class, withOption);
  }
}

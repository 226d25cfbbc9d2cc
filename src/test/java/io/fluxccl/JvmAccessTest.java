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
import org.agrona.UnsafeApi;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.condition.EnabledForJreRange;
import org.junit.jupiter.api.condition.JRE;
import org.junit.jupiter.api.io.TempDir;

@Timeout(60)
@Tag("jdk")
class JvmAccessTest {
  @TempDir Path folder;

  private static ProcessRank start(Class<?> main, String... options) {
    return TestJvms.withoutAccess(1, main).jvmOptions(options).startRank(0);
  }

  /** Opens a host device twice and prints each outcome. */
  static final class OpensTwice {
    public static void main(String[] args) {
      for (int i = 0; i < 2; i++) {
        try (HostDevice device = HostDevice.create()) {
          device.allocate(8).close();
          System.out.println("opened");
        } catch (InvalidUsage e) {
          System.out.println(e.getMessage());
        }
      }
    }
  }

  @Test
  @Tag("multiprocess")
  @RequiresNativeLibrary
  void shouldNeedNoJvmOptionWhereTheNativeLibraryLoads() throws Exception {
    try (ProcessRank child = start(OpensTwice.class)) {
      assertThat(child.readLine()).isEqualTo("opened");
      assertThat(child.readLine()).isEqualTo("opened");
    }
  }

  @Test
  @Tag("multiprocess")
  void shouldNameTheJvmOptionEachTimeWhereTheNativeLibraryIsMissing() throws Exception {
    Files.writeString(folder.resolve("libfluxccl.so"), "no library");
    try (ProcessRank child =
        start(OpensTwice.class, "-D" + NativeLibrary.PATH_PROPERTY + "=" + folder)) {
      String option = "add --add-opens java.base/jdk.internal.misc=ALL-UNNAMED to the java command";
      assertThat(child.readLine()).startsWith(option);
      assertThat(child.readLine()).startsWith(option);
    }
  }

  /** Opens a network without a device twice and prints each outcome. */
  static final class OpensNetworkTwice {
    public static void main(String[] args) {
      for (int i = 0; i < 2; i++) {
        InetAddress here = InetAddress.getLoopbackAddress();
        try (TcpNetPlugin plugin = TcpNetPlugin.at(here, TcpOptions.DEFAULT)) {
          System.out.println("opened");
        } catch (InvalidUsage e) {
          System.out.println(e.getMessage());
        }
      }
    }
  }

  @Test
  @Tag("multiprocess")
  void shouldNameTheJvmOptionEachTimeForANetworkWithoutADevice() throws Exception {
    Files.writeString(folder.resolve("libfluxccl.so"), "no library");
    try (ProcessRank child =
        start(OpensNetworkTwice.class, "-D" + NativeLibrary.PATH_PROPERTY + "=" + folder)) {
      String option = "add --add-opens java.base/jdk.internal.misc=ALL-UNNAMED to the java command";
      assertThat(child.readLine()).startsWith(option);
      assertThat(child.readLine()).startsWith(option);
    }
  }

  @Test
  @Tag("multiprocess")
  @RequiresNativeLibrary
  @EnabledForJreRange(min = JRE.JAVA_24)
  void shouldNameTheJvmOptionsEachTimeWhereTheJvmForbidsNativeCode() throws Exception {
    try (ProcessRank child = start(OpensTwice.class, "--illegal-native-access=deny")) {
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
    try (ProcessRank child = start(OpensTwice.class, agronaAsModule())) {
      String option = "add --add-opens java.base/jdk.internal.misc=org.agrona to the java command";
      assertThat(child.readLine()).startsWith(option);
      assertThat(child.readLine()).startsWith(option);
    }
  }

  @Test
  @Tag("multiprocess")
  void shouldWorkWithAgronaOnTheModulePath() throws Exception {
    String[] options = Arrays.copyOf(agronaAsModule(), 3);
    options[2] = "--add-opens=java.base/jdk.internal.misc=org.agrona";
    try (ProcessRank child = start(OpensTwice.class, options)) {
      assertThat(child.readLine()).isEqualTo("opened");
      assertThat(child.readLine()).isEqualTo("opened");
    }
  }

  private static String[] agronaAsModule() throws Exception {
    Path jar = Path.of(UnsafeApi.class.getProtectionDomain().getCodeSource().getLocation().toURI());
    return new String[] {"--module-path=" + jar, "--add-modules=org.agrona"};
  }
}

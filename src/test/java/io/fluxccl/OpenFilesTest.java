// SPDX-License-Identifier: Apache-2.0
package io.fluxccl;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.bootstrap.BootstrapOptions;
import io.fluxccl.bootstrap.TcpBootstrap;
import io.fluxccl.device.host.SharedSegment;
import io.fluxccl.netplugin.tcp.TcpNetPlugin;
import io.fluxccl.netplugin.tcp.TcpOptions;
import io.fluxccl.testing.TestJvms;
import io.fluxccl.testkit.ProcessRank;
import java.io.FileInputStream;
import java.io.IOException;
import java.net.InetAddress;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Supplier;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(60)
class OpenFilesTest {
  @Test
  void shouldLeaveDescriptorsToTheJobWhateverTheLimit() {
    assertThat(OpenFiles.pendingSockets(0)).isEqualTo(1024);
    assertThat(OpenFiles.pendingSockets(64)).isEqualTo(16);
    assertThat(OpenFiles.pendingSockets(1024)).isEqualTo(64);
    assertThat(OpenFiles.pendingSockets(1 << 20)).isEqualTo(1024);
    assertThat(OpenFiles.pendingSockets()).isBetween(16, 1024);
  }

  @Test
  void shouldExplainOnlyThatThereAreTooManyFiles() {
    IOException full = new IOException("/dev/shm/x: Too many open files");
    assertThat(OpenFiles.explain(new IllegalStateException("no loop", full), "x"))
        .matches("too many open files \\(limit \\d+\\); raise it with ulimit -n");
    assertThat(OpenFiles.explain(new IOException("No space left on device"), "x")).isEqualTo("x");
    assertThat(OpenFiles.explain(new IOException(), "x")).isEqualTo("x");
  }

  @Test
  void shouldReportTheFileLimitIfAnyOpenExceedsIt() throws Exception {
    try (ProcessRank child =
        TestJvms.of(1, Exhausted.class).jvmOptions("-XX:-MaxFDLimit").startRank(0)) {
      for (String what : List.of("segment", "root", "network", "bootstrap")) {
        assertThat(child.readLine())
            .startsWith(what + ": ")
            .containsPattern("too many open files \\(limit \\d+\\); raise it with ulimit -n$");
      }
    }
  }

  /** A process without a file descriptor to spare. */
  static final class Exhausted {
    private static final List<FileInputStream> OPEN = new ArrayList<>();

    private Exhausted() {}

    public static void main(String[] args) throws Exception {
      loadWhatFailuresNeed();
      for (boolean full : new boolean[] {false, true}) {
        TcpBootstrap keepsTheThread = TcpBootstrap.create(0, 1, BootstrapOptions.defaults());
        List<String> said = new ArrayList<>();
        fill(full);
        said.add("segment: " + failureOf(() -> SharedSegment.create(4096)::release));
        said.add("root: " + failureOf(Exhausted::root));
        said.add("network: " + failureOf(Exhausted::network));
        keepsTheThread.close();
        fill(full);
        said.add("bootstrap: " + failureOf(Exhausted::root));
        if (full) {
          said.forEach(System.out::println);
        }
      }
      System.exit(0);
    }

    /** Classes are loaded from files, too. */
    private static void loadWhatFailuresNeed() {
      OpenFiles.explain(new TransportFailure(0, "x"), new DeviceFailure(0, "x", "x").getMessage());
    }

    private static void fill(boolean full) {
      try {
        while (full) {
          OPEN.add(new FileInputStream("/dev/null"));
        }
      } catch (IOException e) {
        // As intended.
      }
    }

    private static AutoCloseable root() {
      TcpBootstrap.createUniqueId(BootstrapOptions.defaults());
      return () -> {};
    }

    private static AutoCloseable network() {
      return TcpNetPlugin.at(InetAddress.getLoopbackAddress(), TcpOptions.DEFAULT);
    }

    private static String failureOf(Supplier<AutoCloseable> open) throws Exception {
      try (AutoCloseable opened = open.get()) {
        return "none";
      } catch (FluxCclException e) {
        return e.getMessage();
      }
    }
  }
}

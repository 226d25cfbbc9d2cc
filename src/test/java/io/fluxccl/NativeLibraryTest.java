// SPDX-License-Identifier: Apache-2.0
package io.fluxccl;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.fluxccl.testing.NativePrograms;
import io.fluxccl.testing.RequiresNativeLibrary;
import io.fluxccl.testing.TestJvms;
import io.fluxccl.testkit.ProcessRank;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.stream.Stream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

@Timeout(60)
@Tag("jdk")
class NativeLibraryTest {
  @TempDir Path folder;

  private static ProcessRank start(String property, Path value) {
    return TestJvms.of(1, Loads.class).jvmOptions("-D" + property + "=" + value).startRank(0);
  }

  /** Prints what became of it. */
  static final class Loads {
    public static void main(String[] args) {
      System.out.println(NativeLibrary.unavailableBecause().orElse("loaded"));
      System.out.println(NativeLibrary.errorText(2));
      try {
        NativeLibrary.require("VMM memory");
        System.out.println("no failure");
      } catch (DeviceFailure e) {
        System.out.println(e.getMessage());
      }
    }
  }

  @Test
  void shouldLoadWhereItCouldBeBuilt() {
    assumeTrue(NativePrograms.isOnPath("gcc"), "no gcc on the PATH");
    assertThat(NativeLibrary.unavailableBecause()).isEmpty();
    NativeLibrary.require("a test");
  }

  @Test
  @RequiresNativeLibrary
  void shouldReturnTheSystemsTextOfAnError() {
    assertThat(NativeLibrary.errorText(2)).isEqualTo("No such file or directory (errno 2)");
  }

  @Test
  @RequiresNativeLibrary
  void shouldLeaveAVariableThatIsSetAlone() throws Exception {
    String name = "FLUXCCL_TEST_" + System.nanoTime();
    assertThat(NativeLibrary.setEnvironmentDefault(name, "first")).isTrue();
    assertThat(NativeLibrary.setEnvironmentDefault(name, "second")).isTrue();
    assertThat(System.getenv(name)).isNull();
  }

  @Test
  @Tag("multiprocess")
  void shouldReportWhyTheGivenFileCannotBeLoaded() throws Exception {
    Path file = Files.writeString(folder.resolve("libfluxccl.so"), "no library");
    try (ProcessRank child = start(NativeLibrary.PATH_PROPERTY, folder)) {
      assertThat(child.readLine()).contains(NativeLibrary.PATH_PROPERTY, file.toString());
      assertThat(child.readLine()).isEqualTo("errno 2");
      assertThat(child.readLine()).startsWith("VMM memory needs FluxCCL's native library: ");
    }
  }

  @Test
  @Tag("multiprocess")
  @RequiresNativeLibrary
  void shouldLeaveNoTemporaryFileAndLoadWithoutATemporaryFolder() throws Exception {
    try (ProcessRank child = start("java.io.tmpdir", folder)) {
      assertThat(child.readLine()).isEqualTo("loaded");
    }
    try (Stream<Path> left = Files.list(folder)) {
      assertThat(left).isEmpty();
    }
    try (ProcessRank child = start("java.io.tmpdir", folder.resolve("none"))) {
      assertThat(child.readLine()).isEqualTo("loaded");
    }
  }
}

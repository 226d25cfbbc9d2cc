// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import static org.assertj.core.api.Assertions.assertThat;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** The device API compiles: every header by itself, without a warning. */
class HeadersTest {
  @TempDir private Path folder;

  @ParameterizedTest
  @MethodSource("headers")
  void shouldCompileAloneForTheHost(String header) throws Exception {
    assertThat(CudaSources.gcc(including(header, ".cpp"), "-fsyntax-only")).isEmpty();
  }

  @ParameterizedTest
  @MethodSource("headers")
  @Tag("nightly")
  void shouldCompileAloneForTheDevice(String header) throws Exception {
    assertThat(nvcc("-ptx", including(header, ".cu"))).isEmpty();
  }

  @ParameterizedTest
  @MethodSource("kernels")
  @Tag("long")
  void shouldCompileTheKernelsOfTestsAndSamples(Path kernel) throws Exception {
    assertThat(nvcc("-cubin", kernel)).isEmpty();
  }

  static List<String> headers() {
    return CudaSources.headers();
  }

  static List<Path> kernels() {
    return CudaSources.kernels();
  }

  private Path including(String header, String ending) throws Exception {
    return Files.writeString(
        folder.resolve("alone" + ending), "#include <fluxccl/" + header + ">\n");
  }

  private String nvcc(String what, Path source) throws Exception {
    return CudaSources.nvcc(
        source,
        folder.resolve("out"),
        what,
        "-I" + CudaSources.INCLUDE.getParent(),
        "-DFLUXCCL_DEBUG_BOUNDS",
        "-Xcompiler=-Wall,-Wextra",
        "--Werror=all-warnings");
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/**
 * The kernels of MSCCL++'s own pages compile against our headers, but for the namespace's name.
 * These pages are not part of this project; {@code -Dfluxccl.reference=FOLDER} names a folder that
 * holds them as {@code mscclpp-*.md}. {@code mscclpp.cu} makes the same calls, and is always
 * compiled and run.
 */
class MscclppSnippetsTest {
  private static final String PAGES = "fluxccl.reference";
  private static final Path EMULATION = Path.of("src/test/native/fakecuda/emulation");
  private static final Path EMULATED = Path.of("target/fakecuda/emulation/include");

  /** Declarations that the functions of the pages use but do not show. */
  private static final String AROUND =
      """
      #include <fluxccl/fluxccl.cuh>
      template <class T>
      using DeviceHandle = fluxccl::DeviceHandle<T>;
      __device__ fluxccl::ProxyChannel channel;
      __device__ fluxccl::DeviceSyncer deviceSyncer;
      __device__ inline void matrixMul() {}
      """;

  @TempDir private Path folder;

  /** Returns the functions of the pages. */
  private static List<String> functions() throws IOException {
    String pages = System.getProperty(PAGES);
    assumeTrue(pages != null, "no -D" + PAGES + " names a folder with MSCCL++'s pages");
    List<String> functions = new ArrayList<>();
    try (Stream<Path> files = Files.list(Path.of(pages))) {
      List<Path> named =
          files.filter(file -> file.getFileName().toString().matches("mscclpp-.*\\.md")).toList();
      for (Path page : named) {
        functions.addAll(functionsOf(Files.readAllLines(page)));
      }
    }
    assertThat(functions).as("kernels in the pages of " + pages).isNotEmpty();
    return functions;
  }

  /** Writes the pages' functions to one file, each in a namespace of its own. */
  private Path pages() throws IOException {
    List<String> functions = functions();
    StringBuilder text = new StringBuilder(AROUND);
    for (int i = 0; i < functions.size(); i++) {
      text.append("namespace page").append(i).append(" {\n").append(functions.get(i)).append("}\n");
    }
    return Files.writeString(folder.resolve("pages.cu"), text);
  }

  /** A function begins with its qualifier at the start of a line, and ends with a brace there. */
  private static List<String> functionsOf(List<String> lines) {
    List<String> functions = new ArrayList<>();
    StringBuilder function = null;
    for (String line : lines) {
      if (line.startsWith("__global__") || line.startsWith("__device__")) {
        function = new StringBuilder();
      }
      if (function != null && !line.strip().equals("...")) {
        // One call in the pages lacks its semicolon.
        String code = line.replace("mscclpp::", "fluxccl::").replaceAll("\\(\\)$", "();");
        function.append(code).append('\n');
        if (line.startsWith("}")) {
          functions.add(function.toString());
          function = null;
        }
      }
    }
    return functions;
  }

  @Test
  void shouldCompileThePagesForGpus() throws Exception {
    assertThat(CudaSources.nvcc(pages(), folder.resolve("cubin"), "-cubin")).isEmpty();
  }

  @Test
  void shouldCompileThePagesForEmulatedGpus() throws Exception {
    Path source = pages();
    assumeTrue(CudaSources.isInstalled("g++"), "there is no g++");
    assumeTrue(Files.isDirectory(EMULATED), "the kernels were not built for the CPU");
    assertThat(
            CudaSources.run(
                "g++",
                "-std=c++17",
                "-fsyntax-only",
                "-Wno-attributes",
                "-I" + EMULATED,
                "-I" + EMULATION,
                "-I" + EMULATION.getParent(),
                "-include",
                EMULATION.resolve("cuda.h").toString(),
                "-x",
                "c++",
                source.toString()))
        .isEmpty();
  }
}

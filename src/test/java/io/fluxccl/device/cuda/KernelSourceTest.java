// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import static org.assertj.core.api.Assertions.assertThat;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class KernelSourceTest {
  private static final Path CUDA = Path.of("src/main/cuda");

  @TempDir Path folder;

  @Test
  void shouldCollectOurHeadersUnderOneNameEach() throws Exception {
    KernelCompiler.Source source =
        KernelCompiler.Source.of("a.cu", "  #include <fluxccl/fluxccl.cuh>\nint x;\n", List.of());
    assertThat(source.text()).isEqualTo("  #include \"fluxccl/fluxccl.cuh\"\nint x;\n");
    try (Stream<Path> headers = Files.list(CUDA.resolve("include/fluxccl"))) {
      List<String> names =
          headers
              .map(header -> "fluxccl/" + header.getFileName())
              .filter(header -> !header.equals("fluxccl/epilogue.cuh")) // for epilogues
              .sorted()
              .toList();
      assertThat(source.packed().keySet()).containsExactlyElementsOf(names);
    }
    assertThat(source.packed().values())
        .allSatisfy(
            text ->
                assertThat(text.lines().filter(line -> line.startsWith("#include \"")))
                    .allMatch(line -> line.startsWith("#include \"fluxccl/")));
  }

  @Test
  void shouldCollectTheKernelsOfAnEpilogue() {
    KernelCompiler.Source source =
        KernelCompiler.Source.of("a.cu", "#include <fluxccl/epilogue.cuh>\n", List.of());
    assertThat(source.packed().keySet())
        .contains("collectives/fused_rows.cuh", "collectives/reduction.cuh", "fluxccl/ptx.cuh");
    assertThat(source.packed().get("fluxccl/epilogue.cuh"))
        .contains("#include \"collectives/fused_rows.cuh\"");
  }

  @Test
  void shouldLeaveTheCompilersHeadersToIt() {
    String text = "#include <cuda_fp16.h>\n#include \"none.cuh\"\n#include MACRO\n";
    KernelCompiler.Source source = KernelCompiler.Source.of("a.cu", text, List.of());
    assertThat(source.text()).isEqualTo(text);
    assertThat(source.packed()).isEmpty();
    assertThat(source.files()).isEmpty();
  }

  @Test
  void shouldFollowTheUsersHeadersAlsoInCirclesAndFindOursThroughThem() throws Exception {
    Path inner = Files.createDirectories(folder.resolve("inner"));
    Files.writeString(folder.resolve("a.cuh"), "#include \"inner/b.cuh\"\n");
    Files.writeString(inner.resolve("b.cuh"), "#include \"c.cuh\"\n#include \"../a.cuh\"\n");
    Files.writeString(inner.resolve("c.cuh"), "#include <fluxccl/config.cuh>\n");
    KernelCompiler.Source source =
        KernelCompiler.Source.of("k.cu", "#include \"a.cuh\"\n", List.of(folder));
    assertThat(source.files().keySet())
        .containsExactlyInAnyOrder(
            folder.resolve("a.cuh"), inner.resolve("b.cuh"), inner.resolve("c.cuh"));
    assertThat(source.packed()).containsOnlyKeys("fluxccl/config.cuh");
    assertThat(source.text()).isEqualTo("#include \"a.cuh\"\n");
  }

  @Test
  void shouldIncludeNoHeadersThatNvrtcLacks() throws Exception {
    try (Stream<Path> sources = Files.walk(CUDA)) {
      for (Path source : sources.filter(path -> path.toString().matches(".*\\.cuh?")).toList()) {
        boolean isBase = source.endsWith("config.cuh") || source.endsWith("epilogue.cuh");
        assertThat(Files.readString(source).lines().filter(line -> line.startsWith("#include <")))
            .as(source.toString())
            .allMatch(line -> isBase || line.startsWith("#include <fluxccl/"));
      }
    }
  }

  // NVRTC knows uint32_t in our namespace only.
  @Test
  void shouldFindIntegersInOurNamespace() throws Exception {
    try (Stream<Path> sources = Files.walk(CUDA)) {
      for (Path source : sources.filter(path -> path.toString().endsWith(".cu")).toList()) {
        String text = Files.readString(source);
        boolean isUsed = text.contains("using namespace fluxccl;");
        assertThat(isUsed || !Pattern.compile("[^:]\\bu?int\\d+_t").matcher(text).find())
            .as(source.toString())
            .isTrue();
      }
    }
  }

  @Test
  void shouldNotLeaveOurFolderOfTheJar() {
    assertThat(KernelCompiler.Source.readPacked("../NativeLibrary.class")).isNull();
    assertThat(KernelCompiler.Source.readPacked("/io/fluxccl/NativeLibrary.class")).isNull();
  }

  @Test
  void shouldPackEveryBuiltInKernel() throws Exception {
    String unit = KernelCompiler.Source.readPacked("builtin.cu");
    try (Stream<Path> kernels = Files.list(CUDA.resolve("collectives"))) {
      List<String> includes =
          kernels
              .map(file -> file.getFileName().toString())
              .filter(file -> file.endsWith(".cu"))
              .map(file -> "#include \"collectives/" + file + "\"")
              .toList();
      assertThat(unit.lines()).containsAll(includes);
    }
    KernelCompiler.Source source = KernelCompiler.Source.of("builtin.cu", unit, List.of());
    assertThat(source.packed()).containsKeys("collectives/empty.cu");
    assertThat(source.packed().values()).allSatisfy(text -> assertThat(text).isNotBlank());
  }
}

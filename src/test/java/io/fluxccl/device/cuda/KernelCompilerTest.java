// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static io.fluxccl.testing.FailureAssertions.assertThrows;
import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.fluxccl.DeviceFailure;
import io.fluxccl.testing.NativePrograms;
import io.fluxccl.testing.RequiresNativeLibrary;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.stream.Stream;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

@Timeout(180)
class KernelCompilerTest {
  private static final CudaCompileOptions NVCC =
      CudaCompileOptions.DEFAULT.withCompiler(CudaCompileOptions.Compiler.NVCC);
  private static final CudaCompileOptions NVRTC =
      CudaCompileOptions.DEFAULT.withCompiler(CudaCompileOptions.Compiler.NVRTC);

  @TempDir Path folder;

  private KernelCompiler compiler(Map<String, String> environment) {
    return new KernelCompiler(
        new CudaToolkit(environment), new KernelCache(folder.resolve("cache")));
  }

  /** Returns a compiler whose NVRTC returns what it was given. */
  private KernelCompiler echo() throws Exception {
    Path library = NativePrograms.sharedLibrary("nvrtc_echo.c", folder, "libnvrtc.so.13");
    return compiler(Map.of(CudaToolkit.NVRTC_VARIABLE, library.toString()));
  }

  private static KernelCompiler.Source source(String text) {
    return KernelCompiler.Source.of("wrong.cu", text, List.of());
  }

  private static String text(CudaModule.Image image) {
    return new String(image.bytes(), StandardCharsets.UTF_8);
  }

  /** Returns a PATH with this nvcc and the tools of the system. */
  private Map<String, String> nvccThat(String does) throws Exception {
    Path home = folder.resolve("toolkit");
    NativePrograms.script(
        home.resolve("bin/nvcc"),
        "case $1 in\n"
            + "--version) echo 'Cuda compilation tools, release 13.0, V13.0.1';;\n"
            + "--list-gpu-code) printf 'sm_80\\nsm_90\\n';;\n"
            + "*) "
            + does
            + ";;\nesac");
    return Map.of("CUDA_HOME", home.toString());
  }

  private long entries() throws Exception {
    try (Stream<Path> files = Files.list(folder.resolve("cache"))) {
      return files.count();
    }
  }

  @Test
  @RequiresNativeLibrary
  void shouldGiveNvrtcTheOptionsAndOurHeaders() throws Exception {
    CudaCompileOptions options = NVRTC.withOption("-DN=3").withIncludePath(Path.of("/some/where"));
    CudaModule.Image image = echo().compile(source("#include <fluxccl/config.cuh>\n"), options, 90);
    String said = text(image);
    assertThat(said)
        .startsWith("cubin\nsource wrong.cu\n#include \"fluxccl/config.cuh\"")
        .contains("header fluxccl/config.cuh\n")
        .contains(
            "option -default-device\noption -std=c++17\noption -arch=sm_90\noption -I/some/where\n")
        .endsWith("option -DN=3\n");
  }

  @ParameterizedTest
  @CsvSource({
    "'', 90, cubin, -arch=sm_90",
    "'', 100, ptx, -arch=compute_90", // a GPU that is newer than the compiler
    "-arch=sm_90a, 90, cubin, -arch=sm_90a",
    "--gpu-architecture compute_80, 90, ptx, compute_80"
  })
  @RequiresNativeLibrary
  void shouldLeaveTheArchitectureToTheUserOrFitItToTheGpu(
      String given, int capability, String kind, String used) throws Exception {
    CudaCompileOptions options = NVRTC;
    for (String word : given.isEmpty() ? new String[0] : given.split(" ")) {
      options = options.withOption(word);
    }
    CudaModule.Image image = echo().compile(source("x"), options, capability);
    assertThat(text(image)).startsWith(kind + "\n").contains("option " + used + "\n");
    assertThat(text(image).split("arch")).hasSize(2);
    assertThat(image.isPtx()).isEqualTo(kind.equals("ptx"));
  }

  @Test
  @RequiresNativeLibrary
  void shouldRefuseAGpuThatIsTooOldForTheCompiler() throws Exception {
    KernelCompiler echo = echo();
    assertRefused(() -> echo.compile(source("x"), NVRTC, 70), "compute capability 70", "[80, 90]");
  }

  @Test
  @RequiresNativeLibrary
  void shouldReportTheMessagesOfNvrtc() throws Exception {
    KernelCompiler echo = echo();
    assertRefused(
        () -> echo.compile(source("#error"), CudaCompileOptions.DEFAULT, 90),
        "NVRTC 13.9",
        "wrong.cu(3): error: #error \"nothing good\"");
    assertThrows(
        DeviceFailure.class,
        () -> echo.compile(source("#crash"), CudaCompileOptions.DEFAULT, 90),
        "NVRTC_ERROR_INTERNAL_ERROR");
  }

  @Test
  @RequiresNativeLibrary
  void shouldCompileAgainOnlyWhenSomethingHasChanged() throws Exception {
    KernelCompiler echo = echo();
    Path header = Files.writeString(folder.resolve("h.cuh"), "int a;");
    CudaCompileOptions options = NVRTC.withIncludePath(folder);
    Callable<KernelCompiler.Source> source =
        () -> KernelCompiler.Source.of("k.cu", "#include \"h.cuh\"\n", List.of(folder));
    CudaModule.Image first = echo.compile(source.call(), options, 90);
    assertThat(echo().compile(source.call(), options, 90).bytes()).isEqualTo(first.bytes());
    assertThat(entries()).isEqualTo(1);
    Files.writeString(header, "int b;");
    echo.compile(source.call(), options, 90);
    assertThat(entries()).isEqualTo(2);
    echo.compile(source.call(), options.withOption("-DX"), 90);
    assertThat(entries()).isEqualTo(3);
    echo.compile(source.call(), options, 80);
    assertThat(entries()).isEqualTo(4);
  }

  @Test
  void shouldListTheSearchedPathsIfCompilersAreMissing() {
    KernelCompiler none = compiler(Map.of(CudaToolkit.NVRTC_VARIABLE, "/none", "PATH", "/none"));
    assertThrows(
        DeviceFailure.class,
        () -> none.compile(source("x"), NVRTC, 90),
        "compiling wrong.cu needs a CUDA compiler",
        "NVRTC");
    assertThat(none.describe()).hasSize(2);
    assertThat(new CudaToolkit(Map.of("PATH", "/a:/b", "CUDA_HOME", "/c")).nvccCandidates())
        .startsWith(Path.of("/c/bin/nvcc"), Path.of("/a/nvcc"), Path.of("/b/nvcc"))
        .contains(Path.of("/usr/local/cuda/bin/nvcc"));
    assertThat(new CudaToolkit(Map.of()).nvrtcCandidates())
        .startsWith("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so");
  }

  @Test
  void shouldNameTheJarOfTheBuiltInKernelsIfThereIsNoCompilerEither() {
    KernelCompiler none = compiler(Map.of(CudaToolkit.NVRTC_VARIABLE, "/none"));
    CudaModule.BuiltIn kernels = new CudaModule.BuiltIn("io/fluxccl/cuda/none.fatbin", none, NVRTC);
    assertThrows(
        DeviceFailure.class,
        () -> kernels.make(90),
        "add the Maven dependency io.fluxccl:fluxccl-kernels",
        "needs a CUDA compiler");
  }

  @Test
  void shouldEndAnNvccThatTakesTooLongWithAllItStarted() throws Exception {
    Path pid = folder.resolve("pid");
    KernelCompiler slow = compiler(nvccThat("sleep 100 & echo $! > " + pid + "; wait"));
    // A busy machine may not start the script within a short limit.
    for (long seconds = 2; !Files.exists(pid) || Files.size(pid) == 0; seconds *= 2) {
      Duration limit = Duration.ofSeconds(seconds);
      assertThrows(
          io.fluxccl.Timeout.class,
          () -> slow.compile(source("x"), NVCC.withTimeout(limit), 90),
          "did not end within " + limit.toMillis() + " ms");
    }
    long child = Long.parseLong(Files.readString(pid).trim());
    Awaitility.await()
        .until(() -> ProcessHandle.of(child).filter(ProcessHandle::isAlive).isEmpty());
  }

  @Test
  void shouldReportTheMessagesOfNvcc() throws Exception {
    KernelCompiler broken = compiler(nvccThat("echo 'wrong.cu(1): error: no'; exit 2"));
    assertRefused(
        () -> broken.compile(source("x"), NVCC, 90),
        "nvcc 13.0.1",
        "exit code 2",
        "wrong.cu(1): error: no");
  }

  @Test
  void shouldCompileWithARealNvcc() throws Exception {
    assumeTrue(NativePrograms.isOnPath("nvcc"), "no nvcc on the PATH");
    assumeTrue(NativePrograms.isOnPath("gcc"), "no gcc on the PATH, which nvcc needs");
    KernelCompiler real = compiler(new HashMap<>(System.getenv()));
    String half =
        """
        #include <fluxccl/config.cuh>
        #include <cuda_fp16.h>
        extern "C" __global__ void f(fluxccl::int32_t* x) { *x = __half2int_rn(__half(N)); }
        """;
    CudaModule.Image cubin = real.compile(source(half), NVCC.withOption("-DN=3"), 90);
    assertThat(cubin.isElf()).isTrue();
    KernelCompiler.Source mine = source("extern \"C\" __global__ void kernel_of_mine() {}");
    CudaModule.Image ptx = real.compile(mine, NVCC.withOption("-arch=compute_80"), 90);
    assertThat(ptx.isPtx()).isTrue();
    assertThat(text(ptx)).contains(".target sm_80").contains("kernel_of_mine");
    assertRefused(
        () -> real.compile(source("\n\n__global__ void f() { undeclared(); }"), NVCC, 90),
        "wrong.cu(3): error: identifier \"undeclared\" is undefined");
  }

  @Test
  @RequiresNativeLibrary
  void shouldCompileWithARealNvrtcAllThatIsBuiltIn() {
    KernelCompiler real = compiler(new HashMap<>(System.getenv()));
    assumeTrue(real.describe().get(0).startsWith("NVRTC "), () -> real.describe().get(0));
    String builtIn = KernelCompiler.Source.readPacked("builtin.cu");
    CudaModule.Image cubin =
        real.compile(KernelCompiler.Source.of("builtin.cu", builtIn, List.of()), NVRTC, 90);
    assertThat(cubin.isElf()).isTrue();
    String wrong = "#include <fluxccl/fluxccl.cuh>\n\n__global__ void f() { undeclared(); }";
    assertRefused(
        () -> real.compile(source(wrong), NVRTC, 90),
        "wrong.cu(3): error: identifier \"undeclared\" is undefined");
  }
}

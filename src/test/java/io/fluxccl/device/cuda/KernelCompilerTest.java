// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.fluxccl.DeviceFailure;
import io.fluxccl.InvalidUsage;
import io.fluxccl.testing.NativePrograms;
import io.fluxccl.testing.RequiresNativeLibrary;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

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

  private KernelCompiler echo() throws Exception {
    Path library = NativePrograms.sharedLibrary("nvrtc_echo.c", folder, "libnvrtc.so.13");
    return compiler(Map.of(CudaToolkit.NVRTC_VARIABLE, library.toString()));
  }

  private static KernelSource source(String text) {
    return KernelSource.of("wrong.cu", text, List.of());
  }

  private static String text(KernelImage image) {
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
    KernelImage image = echo().compile(source("#include <fluxccl/config.cuh>\n"), options, 90);
    String said = text(image);
    assertThat(said)
        .startsWith("cubin\nsource wrong.cu\n#include \"fluxccl/config.cuh\"")
        .contains("header fluxccl/config.cuh\n")
        .contains(
            "option -default-device\noption -std=c++17\noption -arch=sm_90\noption -I/some/where\n")
        .endsWith("option -DN=3\n");
  }

  @Test
  @RequiresNativeLibrary
  void shouldMakePtxForAGpuThatIsNewerThanTheCompiler() throws Exception {
    KernelImage image = echo().compile(source("x"), NVRTC, 100);
    assertThat(text(image)).startsWith("ptx\n").contains("option -arch=compute_90\n");
    assertThat(image.isPtx()).isTrue();
  }

  @Test
  @RequiresNativeLibrary
  void shouldLeaveTheChoiceOfArchitectureToTheUser() throws Exception {
    KernelCompiler echo = echo();
    assertThat(text(echo.compile(source("x"), NVRTC.withOption("-arch=sm_90a"), 90)))
        .startsWith("cubin\n")
        .contains("option -arch=sm_90a\n")
        .doesNotContain("-arch=sm_90\n");
    assertThat(
            text(
                echo.compile(
                    source("x"),
                    NVRTC.withOption("--gpu-architecture").withOption("compute_80"),
                    90)))
        .startsWith("ptx\n");
  }

  @Test
  @RequiresNativeLibrary
  void shouldRefuseAGpuThatIsTooOldForTheCompiler() throws Exception {
    KernelCompiler echo = echo();
    assertThatThrownBy(() -> echo.compile(source("x"), NVRTC, 70))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContaining("compute capability 70")
        .hasMessageContaining("[80, 90]");
  }

  @Test
  @RequiresNativeLibrary
  void shouldReportTheMessagesOfNvrtc() throws Exception {
    KernelCompiler echo = echo();
    assertThatThrownBy(() -> echo.compile(source("#error"), CudaCompileOptions.DEFAULT, 90))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContaining("NVRTC 13.9")
        .hasMessageContaining("wrong.cu(3): error: #error \"nothing good\"");
    assertThatThrownBy(() -> echo.compile(source("#crash"), CudaCompileOptions.DEFAULT, 90))
        .isInstanceOf(DeviceFailure.class)
        .hasMessageContaining("NVRTC_ERROR_INTERNAL_ERROR");
  }

  @Test
  @RequiresNativeLibrary
  void shouldCompileAgainOnlyWhenSomethingHasChanged() throws Exception {
    KernelCompiler echo = echo();
    Path header = Files.writeString(folder.resolve("h.cuh"), "int a;");
    CudaCompileOptions options = NVRTC.withIncludePath(folder);
    String text = "#include \"h.cuh\"\n";
    KernelImage first = echo.compile(KernelSource.of("k.cu", text, List.of(folder)), options, 90);
    KernelImage again = echo().compile(KernelSource.of("k.cu", text, List.of(folder)), options, 90);
    assertThat(again.bytes()).isEqualTo(first.bytes());
    assertThat(entries()).isEqualTo(1);

    Files.writeString(header, "int b;");
    echo.compile(KernelSource.of("k.cu", text, List.of(folder)), options, 90);
    assertThat(entries()).isEqualTo(2);
    echo.compile(KernelSource.of("k.cu", text, List.of(folder)), options.withOption("-DX"), 90);
    assertThat(entries()).isEqualTo(3);
    echo.compile(KernelSource.of("k.cu", text, List.of(folder)), options, 80);
    assertThat(entries()).isEqualTo(4);
  }

  @Test
  void shouldListTheSearchedPathsIfCompilersAreMissing() {
    KernelCompiler none =
        compiler(
            Map.of(
                CudaToolkit.NVRTC_VARIABLE,
                folder.resolve("libnvrtc.so.13").toString(),
                "PATH",
                folder.toString()));
    assertThatThrownBy(() -> none.compile(source("x"), NVRTC, 90))
        .isInstanceOf(DeviceFailure.class)
        .hasMessageContaining("compiling wrong.cu needs a CUDA compiler")
        .hasMessageContaining("NVRTC");
    assertThat(none.describe()).hasSize(2);
    assertThat(new CudaToolkit(Map.of("PATH", "/a:/b", "CUDA_HOME", "/c")).nvccCandidates())
        .startsWith(Path.of("/c/bin/nvcc"), Path.of("/a/nvcc"), Path.of("/b/nvcc"))
        .contains(Path.of("/usr/local/cuda/bin/nvcc"));
    assertThat(new CudaToolkit(Map.of()).nvrtcCandidates())
        .startsWith("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so");
  }

  @Test
  void shouldNameTheJarOfTheBuiltInKernelsIfThereIsNoCompilerEither() {
    KernelCompiler none =
        compiler(Map.of(CudaToolkit.NVRTC_VARIABLE, folder.resolve("libnvrtc.so.13").toString()));
    BuiltInKernels kernels = new BuiltInKernels("io/fluxccl/cuda/none.fatbin", none, NVRTC);
    assertThatThrownBy(() -> kernels.make(90))
        .isInstanceOf(DeviceFailure.class)
        .hasMessageContaining("add the Maven dependency io.fluxccl:fluxccl-kernels")
        .hasMessageContaining("needs a CUDA compiler");
  }

  @Test
  void shouldEndAnNvccThatTakesTooLongWithAllItStarted() throws Exception {
    Path pid = folder.resolve("pid");
    KernelCompiler slow = compiler(nvccThat("sleep 100 & echo $! > " + pid + "; wait"));
    assertThatThrownBy(() -> slow.compile(source("x"), NVCC.withTimeout(Duration.ofSeconds(2)), 90))
        .isInstanceOf(io.fluxccl.Timeout.class)
        .hasMessageContaining("did not end within 2000 ms");
    long child = Long.parseLong(Files.readString(pid).trim());
    Awaitility.await()
        .until(() -> ProcessHandle.of(child).filter(ProcessHandle::isAlive).isEmpty());
  }

  @Test
  void shouldReportTheMessagesOfNvcc() throws Exception {
    KernelCompiler broken = compiler(nvccThat("echo 'wrong.cu(1): error: no'; exit 2"));
    assertThatThrownBy(() -> broken.compile(source("x"), NVCC, 90))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContaining("nvcc 13.0.1")
        .hasMessageContaining("exit code 2")
        .hasMessageContaining("wrong.cu(1): error: no");
  }

  @Test
  void shouldCompileWithARealNvcc() throws Exception {
    assumeTrue(NativePrograms.isOnPath("nvcc"), "no nvcc on the PATH");
    assumeTrue(NativePrograms.isOnPath("gcc"), "no gcc on the PATH, which nvcc needs");
    KernelCompiler real = compiler(new HashMap<>(System.getenv()));
    KernelImage cubin =
        real.compile(
            source(
                "#include <fluxccl/config.cuh>\n"
                    + "#include <cuda_fp16.h>\n"
                    + "extern \"C\" __global__ void f(fluxccl::int32_t* x) { *x ="
                    + " __half2int_rn(__half(N)); }"),
            NVCC.withOption("-DN=3"),
            90);
    assertThat(cubin.isElf()).isTrue();
    KernelImage ptx =
        real.compile(
            source("extern \"C\" __global__ void kernel_of_mine() {}"),
            NVCC.withOption("-arch=compute_80"),
            90);
    assertThat(ptx.isPtx()).isTrue();
    assertThat(text(ptx)).contains(".target sm_80").contains("kernel_of_mine");
    assertThatThrownBy(
            () -> real.compile(source("\n\n__global__ void f() { undeclared(); }"), NVCC, 90))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContaining("wrong.cu(3): error: identifier \"undeclared\" is undefined");
  }

  @Test
  @RequiresNativeLibrary
  void shouldCompileWithARealNvrtcAllThatIsBuiltIn() {
    KernelCompiler real = compiler(new HashMap<>(System.getenv()));
    assumeTrue(real.describe().get(0).startsWith("NVRTC "), () -> real.describe().get(0));
    String builtIn = KernelSource.readPacked("builtin.cu");
    KernelImage cubin = real.compile(KernelSource.of("builtin.cu", builtIn, List.of()), NVRTC, 90);
    assertThat(cubin.isElf()).isTrue();
    String wrong = "#include <fluxccl/fluxccl.cuh>\n\n__global__ void f() { undeclared(); }";
    assertThatThrownBy(() -> real.compile(source(wrong), NVRTC, 90))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContaining("wrong.cu(3): error: identifier \"undeclared\" is undefined");
  }
}

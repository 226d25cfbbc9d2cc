// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.fluxccl.device.KernelArgs;
import io.fluxccl.testing.RequiresGpus;
import io.fluxccl.testing.RequiresNativeLibrary;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Users' kernels on a real GPU. */
@RequiresGpus
@Timeout(180)
class CudaModuleTest {
  private static final String SOURCE =
      """
      #include <fluxccl/fluxccl.cuh>
      struct Shape { long long rows; int columns; float factor; };
      extern "C" __global__ void measure(double* out, Shape shape, int more, char small) {
        *out = shape.rows * shape.columns * shape.factor + more + small;
      }
      extern "C" __global__ void fill_shared(int* out) {
        extern __shared__ int words[];
        words[25 * 1024 - 1 - threadIdx.x] = threadIdx.x;
        __syncthreads();
        if (threadIdx.x == 0) *out = words[25 * 1024 - blockDim.x];
      }
      """;

  private final CudaDevice device = CudaDevice.open(0);

  @TempDir Path folder;

  @AfterEach
  void close() {
    device.close();
  }

  private CudaModule.Image compiled(CudaCompileOptions options) {
    List<String> compilers = KernelCompiler.PROCESS.describe();
    boolean nvcc = options.compiler() == CudaCompileOptions.Compiler.NVCC;
    String found = compilers.get(nvcc ? 1 : 0);
    assumeTrue(found.startsWith(nvcc ? "nvcc " : "NVRTC "), found);
    return KernelCompiler.PROCESS.compile(
        KernelCompiler.Source.of("measure.cu", SOURCE, List.of()),
        options,
        device.computeCapability());
  }

  private static byte[] shape() {
    return ByteBuffer.allocate(16)
        .order(ByteOrder.LITTLE_ENDIAN)
        .putLong(3)
        .putInt(5)
        .putFloat(0.5f)
        .array();
  }

  private void measure(CudaModule module) {
    try (CudaPinnedBuffer out = device.allocatePinned(8);
        CudaStream stream = device.createStream("measure")) {
      stream.launch(module.kernel("measure"), 1, 1, KernelArgs.of(out, shape(), 7, new byte[] {2}));
      assertThat(stream.completion()).succeedsWithin(30, TimeUnit.SECONDS);
      assertThat(out.buffer().getDouble(0)).isEqualTo(16.5);
    }
  }

  @ParameterizedTest
  @EnumSource(
      value = CudaCompileOptions.Compiler.class,
      names = {"NVRTC", "NVCC"})
  void shouldRunKernelsOfEachCompilerFromSourceCubinAndPtx(CudaCompileOptions.Compiler compiler)
      throws Exception {
    CudaCompileOptions options = CudaCompileOptions.DEFAULT.withCompiler(compiler);
    CudaModule.Image cubin = compiled(options);
    assertThat(cubin.isElf()).isTrue();
    CudaModule.Image ptx = compiled(options.withOption("-arch=compute_80"));
    Path source = Files.writeString(folder.resolve("measure.cu"), SOURCE);
    Path binary = Files.write(folder.resolve("measure.cubin"), cubin.bytes());
    for (CudaModule each :
        List.of(
            CudaModule.fromSource("measure.cu", SOURCE, options),
            CudaModule.fromCubin(cubin.bytes()),
            CudaModule.fromFile(binary),
            CudaModule.fromPtx(ptx.bytes()),
            CudaModule.fromFile(source, options))) {
      try (CudaModule module = each) {
        measure(module);
      }
    }
  }

  @Test
  void shouldHaveEveryBuiltInKernelInTheFatBinaryAndInTheSources() {
    CudaModule.builtIn().prepare(device);
    CudaModule.builtIn().kernel("fluxccl_empty").prepare(device);
    String found = KernelCompiler.PROCESS.describe().get(0);
    assumeTrue(found.startsWith("NVRTC "), found);
    CudaModule.Image image =
        KernelCompiler.PROCESS.compile(
            KernelCompiler.Source.of(
                "builtin.cu", KernelCompiler.Source.readPacked("builtin.cu"), List.of()),
            CudaCompileOptions.DEFAULT,
            device.computeCapability());
    try (CudaModule module = CudaModule.fromCubin(image.bytes())) {
      module.kernel("fluxccl_empty").prepare(device);
    }
  }

  @Test
  void shouldGiveMoreThan48KibOfSharedMemory() {
    compiled(CudaCompileOptions.DEFAULT);
    try (CudaModule module = CudaModule.fromSource("measure.cu", SOURCE);
        CudaPinnedBuffer out = device.allocatePinned(8);
        CudaStream stream = device.createStream("shared")) {
      CudaKernel kernel = module.kernel("fill_shared").withSharedMemory(100 * 1024);
      stream.launch(kernel, 1, 64, KernelArgs.of(out));
      assertThat(stream.completion()).succeedsWithin(30, TimeUnit.SECONDS);
      assertThat(out.buffer().getInt(0)).isEqualTo(63);
    }
  }

  @Test
  @RequiresNativeLibrary
  void shouldReportTheDriversErrorIfPtxIsInvalid() {
    String ptx =
        ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry f() { nonsense; }\n";
    try (CudaModule module = CudaModule.fromPtx(ptx.getBytes(StandardCharsets.US_ASCII))) {
      assertRefused(() -> module.prepare(device), "CUDA_ERROR_INVALID_PTX", "ptxas");
    }
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.fluxccl.InvalidUsage;
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
      "#include <fluxccl/fluxccl.cuh>\n"
          + "struct Shape { long long rows; int columns; float factor; };\n"
          + "extern \"C\" __global__ void measure(double* out, Shape shape, int more, char small)"
          + " {\n"
          + "  *out = shape.rows * shape.columns * shape.factor + more + small;\n"
          + "}\n"
          + "extern \"C\" __global__ void fill_shared(int* out) {\n"
          + "  extern __shared__ int words[];\n"
          + "  words[25 * 1024 - 1 - threadIdx.x] = threadIdx.x;\n"
          + "  __syncthreads();\n"
          + "  if (threadIdx.x == 0) *out = words[25 * 1024 - blockDim.x];\n"
          + "}\n";

  private final CudaDevice device = CudaDevice.open(0);

  @TempDir Path folder;

  @AfterEach
  void close() {
    device.close();
  }

  private KernelImage compiled(CudaCompileOptions options) {
    List<String> compilers = KernelCompiler.PROCESS.describe();
    boolean nvcc = options.compiler() == CudaCompileOptions.Compiler.NVCC;
    String found = compilers.get(nvcc ? 1 : 0);
    assumeTrue(found.startsWith(nvcc ? "nvcc " : "NVRTC "), found);
    return KernelCompiler.PROCESS.compile(
        KernelSource.of("measure.cu", SOURCE, List.of()), options, device.computeCapability());
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
    KernelImage cubin = compiled(options);
    assertThat(cubin.isElf()).isTrue();
    try (CudaModule module = CudaModule.fromSource("measure.cu", SOURCE, options)) {
      measure(module);
    }
    try (CudaModule module = CudaModule.fromCubin(cubin.bytes())) {
      measure(module);
    }
    try (CudaModule module =
        CudaModule.fromFile(Files.write(folder.resolve("measure.cubin"), cubin.bytes()))) {
      measure(module);
    }
    KernelImage ptx = compiled(options.withOption("-arch=compute_80"));
    try (CudaModule module = CudaModule.fromPtx(ptx.bytes())) {
      measure(module);
    }
    Path file = Files.writeString(folder.resolve("measure.cu"), SOURCE);
    try (CudaModule module = CudaModule.fromFile(file, options)) {
      measure(module);
    }
  }

  @Test
  void shouldHaveEveryBuiltInKernelInTheFatBinaryAndInTheSources() {
    CudaModule.builtIn().prepare(device);
    CudaModule.builtIn().kernel("fluxccl_empty").prepare(device);
    String found = KernelCompiler.PROCESS.describe().get(0);
    assumeTrue(found.startsWith("NVRTC "), found);
    KernelImage image =
        KernelCompiler.PROCESS.compile(
            KernelSource.of("builtin.cu", KernelSource.readPacked("builtin.cu"), List.of()),
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
  void shouldRefuseArgumentsThatTheKernelDoesNotTake() {
    compiled(CudaCompileOptions.DEFAULT);
    try (CudaModule module = CudaModule.fromSource("measure.cu", SOURCE);
        CudaPinnedBuffer out = device.allocatePinned(8);
        CudaStream stream = device.createStream("args")) {
      CudaKernel kernel = module.kernel("measure").prepare(device);
      assumeTrue(
          kernel.loadedOn(device).signature.sizes() != null,
          "the driver is older than cuFuncGetParamInfo");
      assertThatThrownBy(() -> stream.launch(kernel, 1, 1, KernelArgs.of(out)))
          .isInstanceOf(InvalidUsage.class)
          .hasMessageContaining("takes 4 arguments of 8, 16, 4, 1 bytes, was given 1");
      assertThatThrownBy(
              () ->
                  stream.launch(kernel, 1, 1, KernelArgs.of(out, new byte[12], 7, new byte[] {2})))
          .isInstanceOf(InvalidUsage.class)
          .hasMessageContaining("argument 1 of kernel measure takes 16 bytes, was given 12");
      measure(module); // the context is still usable
    }
  }

  @Test
  @RequiresNativeLibrary
  void shouldReportTheDriversErrorIfPtxIsInvalid() {
    String ptx =
        ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry f() { nonsense; }\n";
    try (CudaModule module = CudaModule.fromPtx(ptx.getBytes(StandardCharsets.US_ASCII))) {
      assertThatThrownBy(() -> module.prepare(device))
          .isInstanceOf(InvalidUsage.class)
          .hasMessageContaining("CUDA_ERROR_INVALID_PTX")
          .hasMessageContaining("ptxas");
    }
  }
}

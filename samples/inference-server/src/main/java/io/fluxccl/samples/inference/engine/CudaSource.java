// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.engine;

import io.fluxccl.DataType;
import io.fluxccl.device.cuda.CudaCompileOptions;
import io.fluxccl.device.cuda.CudaModule;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.stream.Collectors;

/** The CUDA source of {@link CudaKernels}, from files that build on each other. */
final class CudaSource {
  private static final List<String> ANY_GPU = List.of("llama.cu", "attention.cu", "sampling.cu");
  private static final List<String> HOPPER =
      List.of(
          "llama.cu",
          "hopper/hopper.cu",
          "hopper/attention.cu",
          "sampling.cu",
          "hopper/sampling.cu");

  private CudaSource() {}

  /**
   * Returns the kernels, compiled at their first use.
   *
   * @param group how many heads of queries share one of keys and values
   * @param forHopper with those for GPUs of compute capability 9.0 only
   */
  static CudaModule compile(int headDim, int group, DataType type, boolean forHopper) {
    CudaCompileOptions options =
        CudaCompileOptions.DEFAULT
            .withOption("-DHEAD_DIM=" + headDim)
            .withOption("-DGROUP=" + group);
    if (type == DataType.FLOAT32) {
      options = options.withOption("-DFLOAT_ELEMENTS");
    }
    if (forHopper) {
      options = options.withOption("-arch=sm_90a"); // or there is no wgmma
    }
    return CudaModule.fromSource("llama.cu", text(forHopper), options);
  }

  /** Returns what is compiled. */
  static String text(boolean forHopper) {
    return (forHopper ? HOPPER : ANY_GPU)
        .stream().map(CudaSource::read).collect(Collectors.joining());
  }

  private static String read(String name) {
    try (InputStream in = CudaSource.class.getResourceAsStream(name)) {
      return new String(in.readAllBytes(), StandardCharsets.UTF_8);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.matmul;

import io.fluxccl.DeviceFailure;
import io.fluxccl.NativeLibrary;
import io.fluxccl.Text;
import io.fluxccl.device.cuda.CudaToolkit;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

/** NVIDIA's library of matrix products, the first that can be opened. */
final class CublasLt {
  /** Environment: the file of libcublasLt, or the folder that it lies in. */
  static final String VARIABLE = "FLUXCCL_CUBLASLT";

  final long library;
  final String version;

  private CublasLt(long library) {
    this.library = library;
    long number = CublasLtCalls.version(library);
    this.version = "cuBLASLt " + number / 10_000 + "." + number / 100 % 100 + "." + number % 100;
  }

  /**
   * Opens it.
   *
   * @throws DeviceFailure if there is none; the message lists the candidates
   */
  static CublasLt find(CudaToolkit toolkit) {
    NativeLibrary.require("cuBLASLt");
    List<String> problems = new ArrayList<>();
    for (String candidate : toolkit.candidates(VARIABLE, "libcublasLt")) {
      try {
        return new CublasLt(CublasLtCalls.open(candidate.getBytes(StandardCharsets.UTF_8)));
      } catch (UnsatisfiedLinkError e) {
        problems.add(e.getMessage());
      }
    }
    throw new DeviceFailure(
        0,
        "CUBLASLT_MISSING",
        Text.of(
            "no libcublasLt found; looked for %s; install the CUDA toolkit's cuBLAS (package"
                + " libcublas-13-0, or nvidia-cublas of pip) or set %s to its file or folder",
            String.join("; ", problems), VARIABLE));
  }

  void check(int status, String call) {
    if (status != 0) {
      String word = new String(CublasLtCalls.describe(library, status), StandardCharsets.UTF_8);
      throw new DeviceFailure(status, word, call + ": " + word + " (" + version + ")");
    }
  }
}

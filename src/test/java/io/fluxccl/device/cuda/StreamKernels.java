// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;

/** The kernels of {@code cuda/stream_kernels.ptx}; the fake driver has them too. */
final class StreamKernels {
  private static final CudaModule MODULE = CudaModule.fromPtx(read());

  static final CudaKernel FILL = MODULE.kernel("fake_fill");
  static final CudaKernel STORE = MODULE.kernel("fake_store");
  static final CudaKernel ADD = MODULE.kernel("fake_add");
  static final CudaKernel SPIN = MODULE.kernel("fake_spin");
  static final CudaKernel TRAP = MODULE.kernel("fake_trap");

  private StreamKernels() {}

  private static byte[] read() {
    try (InputStream in = StreamKernels.class.getResourceAsStream("/cuda/stream_kernels.ptx")) {
      return in.readAllBytes();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /** Loads all kernels, so that none is loaded while a kernel spins. */
  static void load(CudaDevice device) {
    for (CudaKernel kernel : new CudaKernel[] {FILL, STORE, ADD, SPIN, TRAP}) {
      kernel.prepare(device);
    }
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.gpu;

import io.fluxccl.device.Kernel;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.device.cuda.CudaModule;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/**
 * The kernels under src/test/resources/cuda, once a process: the fat binary beside a source where
 * the bundle has one, otherwise compiled as a user's would be.
 */
public final class TestKernels {
  private static final String PATTERN = "#include \"pattern.cuh\"";
  private static final Map<String, CudaModule> MODULES = new ConcurrentHashMap<>();

  private TestKernels() {}

  /** One kernel of a file, named without its ending. */
  public static Kernel of(String file, String kernel) {
    return module(file).kernel(kernel);
  }

  /**
   * Loads all of a file's kernels on a device: what is loaded while another rank's kernel waits for
   * this one would wait for that.
   */
  public static void prepare(CudaDevice device, String... files) {
    for (String file : files) {
      module(file).prepare(device);
    }
  }

  private static CudaModule module(String file) {
    return MODULES.computeIfAbsent(file, TestKernels::load);
  }

  private static CudaModule load(String file) {
    byte[] binary = resource(file + ".fatbin");
    if (binary != null) {
      return CudaModule.fromCubin(binary);
    }
    String source = new String(resource(file + ".cu"), StandardCharsets.UTF_8);
    // A source in a jar has no folder in which the compiler would find what lies beside it.
    String pattern = new String(resource("pattern.cuh"), StandardCharsets.UTF_8);
    return CudaModule.fromSource(
        file + ".cu", source.replace(PATTERN, pattern.replace("#pragma once", "")));
  }

  private static byte[] resource(String name) {
    try (InputStream in = TestKernels.class.getResourceAsStream("/cuda/" + name)) {
      return in == null ? null : in.readAllBytes();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.benchmarks;

import io.fluxccl.device.cuda.CudaDriver;
import io.fluxccl.device.cuda.CudaStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import jcuda.driver.CUgraph;
import org.agrona.BufferUtil;

/** A loop in C that launches a kernel and waits for it; compiled where it runs. */
final class LaunchLoop {
  private static final String SOURCE = "launch_loop.c";
  private static final String[] COMPILERS = {"cc", "gcc", "clang"};

  private LaunchLoop() {}

  /** Compiles and loads it; false where there is no compiler. */
  static boolean build() throws IOException, InterruptedException {
    Path folder = Files.createTempDirectory("fluxccl-launch-loop");
    Path source = folder.resolve(SOURCE);
    Path library = folder.resolve("liblaunch_loop.so");
    try (InputStream in = LaunchLoop.class.getResourceAsStream(SOURCE)) {
      Files.copy(in, source, StandardCopyOption.REPLACE_EXISTING);
    }
    boolean built = false;
    for (String compiler : COMPILERS) {
      built = built || compile(compiler, source, library);
    }
    if (built) {
      System.load(library.toString());
    }
    Files.deleteIfExists(library);
    Files.delete(source);
    Files.delete(folder);
    return built;
  }

  private static boolean compile(String compiler, Path source, Path library)
      throws InterruptedException {
    try {
      return new ProcessBuilder(
                  compiler,
                  "-std=c11",
                  "-O2",
                  "-shared",
                  "-fPIC",
                  "-o",
                  library.toString(),
                  source.toString(),
                  "-ldl")
              .inheritIO()
              .start()
              .waitFor()
          == 0;
    } catch (IOException e) {
      return false; // there is none of that name
    }
  }

  /**
   * Launches the only kernel of a graph again and again, and waits for it each time.
   *
   * @param graph recorded on the stream's GPU
   * @param stream on which
   * @param launches how often
   * @return microseconds of each
   */
  static double[] micros(CUgraph graph, CudaStream stream, int launches) {
    ByteBuffer nanos =
        ByteBuffer.allocateDirect(launches * Long.BYTES).order(ByteOrder.nativeOrder());
    stream.device().makeCurrent();
    int result =
        run(
            CudaDriver.valueOf(graph),
            CudaDriver.valueOf(stream.handle()),
            launches,
            BufferUtil.address(nanos));
    if (result != 0) {
      throw new IllegalStateException(
          result < 0 ? "the call is not one kernel" : "the driver gave CUresult " + result);
    }
    double[] micros = new double[launches];
    for (int i = 0; i < launches; i++) {
      micros[i] = nanos.getLong(i * Long.BYTES) / 1e3;
    }
    return micros;
  }

  private static native int run(long graph, long stream, long launches, long nanos);
}

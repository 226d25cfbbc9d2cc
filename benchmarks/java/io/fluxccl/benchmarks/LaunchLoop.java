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
import java.util.ArrayList;
import java.util.List;
import jcuda.driver.CUgraph;
import jcuda.driver.CUgraphExec;
import jcuda.driver.JCudaDriver;
import org.agrona.BufferUtil;

/** Loops in C that launch a kernel or a graph and wait for it; compiled where they run. */
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
      List<String> command = new ArrayList<>(List.of(compiler, "-std=c11", "-O2", "-shared"));
      command.addAll(List.of("-fPIC", "-o", library.toString(), source.toString(), "-ldl"));
      return new ProcessBuilder(command).inheritIO().start().waitFor() == 0;
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
    return micros(
        stream, launches, (on, nanos) -> run(CudaDriver.valueOf(graph), on, launches, nanos));
  }

  /**
   * Launches a graph repeatedly, and waits for each launch or only for the last one.
   *
   * @return microseconds of each launch; the last one includes the wait for all, if it alone waits
   */
  static double[] replayMicros(CUgraph graph, CudaStream stream, int launches, boolean each) {
    stream.device().makeCurrent();
    CUgraphExec ready = new CUgraphExec();
    int result = JCudaDriver.cuGraphInstantiate(ready, graph, 0);
    if (result != 0) {
      throw new IllegalStateException("the driver gave CUresult " + result);
    }
    try {
      return micros(
          stream,
          launches,
          (on, nanos) -> replay(CudaDriver.valueOf(ready), on, launches, each, nanos));
    } finally {
      JCudaDriver.cuGraphExecDestroy(ready);
    }
  }

  /** A loop on a stream, which writes its times to an address and returns a CUresult, or -1. */
  private interface Loop {
    int run(long stream, long nanos);
  }

  private static double[] micros(CudaStream stream, int launches, Loop loop) {
    ByteBuffer nanos =
        ByteBuffer.allocateDirect(launches * Long.BYTES).order(ByteOrder.nativeOrder());
    stream.device().makeCurrent();
    int result = loop.run(CudaDriver.valueOf(stream.handle()), BufferUtil.address(nanos));
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

  private static native int replay(
      long graph, long stream, long launches, boolean each, long nanos);
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.engine;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Stream;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** {@link CudaSource} compiles, for several models, also where there is no GPU. */
@Timeout(120)
class LlamaSourceTest {
  private static final String HEADERS = "-I../../src/main/cuda/include";

  @TempDir private Path folder;

  @BeforeAll
  static void requireCompiler() {
    Stream<String> path = Stream.of(System.getenv("PATH").split(File.pathSeparator));
    assumeTrue(path.anyMatch(entry -> Files.isExecutable(Path.of(entry, "nvcc"))), "no nvcc");
  }

  @ParameterizedTest
  @ValueSource(
      strings = {
        "-DHEAD_DIM=128 -DGROUP=4 -arch=sm_80",
        "-DHEAD_DIM=64 -DGROUP=8 -DFLOAT_ELEMENTS -arch=sm_90",
        "-DHEAD_DIM=128 -DGROUP=4 -arch=sm_90a",
        "-DHEAD_DIM=32 -DGROUP=2 -arch=sm_90a",
        "-DHEAD_DIM=64 -DGROUP=8 -arch=sm_90a"
      })
  void shouldCompile(String options) throws IOException, InterruptedException {
    String text = CudaSource.text(options.contains("90a"));
    Path source = Files.writeString(folder.resolve("llama.cu"), text);
    Path log = folder.resolve("log");
    List<String> command = new ArrayList<>(List.of("nvcc", "-std=c++17", "-cubin", HEADERS));
    command.addAll(List.of(options.split(" ")));
    command.addAll(List.of("-Werror", "all-warnings", "-o", folder.resolve("cubin").toString()));
    command.add(source.toString());
    Process compiler =
        new ProcessBuilder(command).redirectErrorStream(true).redirectOutput(log.toFile()).start();
    assertThat(compiler.waitFor()).as(() -> read(log)).isZero();
  }

  private static String read(Path log) {
    try {
      return Files.readString(log);
    } catch (IOException e) {
      return e.toString();
    }
  }
}

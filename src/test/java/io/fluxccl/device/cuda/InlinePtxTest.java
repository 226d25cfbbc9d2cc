// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import static org.assertj.core.api.Assertions.assertThat;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

/** Inline PTX is wrapped in named functions, which the emulation replaces. */
class InlinePtxTest {
  private static final Pattern ASM = Pattern.compile("\\basm\\b");

  @Test
  void shouldUseInlinePtxInThreeHeadersOnly() throws IOException {
    assertThat(sources("src/main/cuda", "src/test/resources/cuda"))
        .filteredOn(path -> ASM.matcher(text(path)).find())
        .extracting(path -> path.getFileName().toString())
        .containsExactlyInAnyOrder("atomics.cuh", "ptx.cuh", "wgmma.cuh");
  }

  private static List<Path> sources(String... folders) throws IOException {
    try (Stream<Path> paths = Stream.of(folders).map(Path::of).flatMap(InlinePtxTest::filesBelow)) {
      return paths.toList();
    }
  }

  private static Stream<Path> filesBelow(Path folder) {
    try {
      return Files.walk(folder).filter(path -> path.toString().matches(".*\\.cuh?"));
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  private static String text(Path path) {
    try {
      return Files.readString(path);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }
}

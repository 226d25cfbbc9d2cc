// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import static org.assertj.core.api.Assertions.assertThat;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;

/** Inline PTX is wrapped in named functions, which the emulation replaces. */
class InlinePtxTest {
  private static final Pattern ASM = Pattern.compile("\\basm\\b");

  @Test
  void shouldUseInlinePtxInThreeHeadersOnly() throws IOException {
    List<String> found = new ArrayList<>();
    for (Path folder : List.of(Path.of("src/main/cuda"), CudaSources.TESTS)) {
      for (Path file : CudaSources.filesIn(folder, "")) {
        String name = file.getFileName().toString();
        if (name.matches(".*\\.cuh?") && ASM.matcher(Files.readString(file)).find()) {
          found.add(name);
        }
      }
    }
    assertThat(found).containsExactlyInAnyOrder("atomics.cuh", "ptx.cuh", "wgmma.cuh");
  }
}

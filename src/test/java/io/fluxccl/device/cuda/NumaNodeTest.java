// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import static org.assertj.core.api.Assertions.assertThat;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.BitSet;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class NumaNodeTest {
  private static final String GPU = "0000:3b:00.0";

  @TempDir private Path sys;

  private void write(String file, String text) throws IOException {
    Path path = sys.resolve(file);
    Files.createDirectories(path.getParent());
    Files.writeString(path, text);
  }

  @Test
  void shouldReadTheNodeOfAGpu() throws Exception {
    write("bus/pci/devices/" + GPU + "/numa_node", "1\n");
    assertThat(NumaNode.of(sys, GPU)).isEqualTo(1);
    write("bus/pci/devices/" + GPU + "/numa_node", "-1\n");
    assertThat(NumaNode.of(sys, GPU)).isEqualTo(NumaNode.UNKNOWN);
    assertThat(NumaNode.of(sys, "0000:00:00.0")).isEqualTo(NumaNode.UNKNOWN);
  }

  @Test
  void shouldReadTheProcessorsOfANode() throws Exception {
    write("devices/system/node/node0/cpulist", "0-3,8,10-11\n");
    BitSet expected = new BitSet();
    expected.set(0, 4);
    expected.set(8);
    expected.set(10, 12);
    assertThat(NumaNode.processors(sys, 0)).isEqualTo(expected);
    write("devices/system/node/node1/cpulist", "\n"); // memory without processors
    assertThat(NumaNode.processors(sys, 1).isEmpty()).isTrue();
    assertThat(NumaNode.processors(sys, -1).isEmpty()).isTrue();
  }
}

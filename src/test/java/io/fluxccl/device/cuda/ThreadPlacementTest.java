// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.testing.RequiresNativeLibrary;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.BitSet;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class ThreadPlacementTest {
  private static BitSet processors(int... numbers) {
    BitSet set = new BitSet();
    for (int number : numbers) {
      set.set(number);
    }
    return set;
  }

  @Test
  @RequiresNativeLibrary
  void shouldBindTheCallingThreadOnlyAndBeAbleToMoveItOn() throws Exception {
    BitSet all = ThreadPlacement.current();
    int first = all.nextSetBit(0);
    int last = all.length() - 1;
    CompletableFuture.runAsync(
            () -> {
              assertThat(ThreadPlacement.bindTo(processors(first, 8190))).isEmpty();
              assertThat(ThreadPlacement.current()).isEqualTo(processors(first));
              assertThat(ThreadPlacement.bindTo(processors(last))).isEmpty();
              assertThat(ThreadPlacement.current()).isEqualTo(processors(last));
            },
            task -> new Thread(task).start())
        .get();
    assertThat(ThreadPlacement.current()).isEqualTo(all);
  }

  @Test
  @RequiresNativeLibrary
  void shouldNotBindTheThreadIfTheProcessorsAreUnusable() {
    BitSet before = ThreadPlacement.current();
    assertThat(ThreadPlacement.bindTo(processors()).orElseThrow()).contains("unknown");
    assertThat(ThreadPlacement.bindTo(processors(8191)).orElseThrow()).contains("may use none");
    assertThat(ThreadPlacement.current()).isEqualTo(before);
  }

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
    assertThat(ThreadPlacement.numaNode(sys, GPU)).isEqualTo(1);
    write("bus/pci/devices/" + GPU + "/numa_node", "-1\n");
    assertThat(ThreadPlacement.numaNode(sys, GPU)).isEqualTo(ThreadPlacement.UNKNOWN);
    assertThat(ThreadPlacement.numaNode(sys, "0000:00:00.0")).isEqualTo(ThreadPlacement.UNKNOWN);
  }

  @Test
  void shouldReadTheProcessorsOfANode() throws Exception {
    write("devices/system/node/node0/cpulist", "0-3,8,10-11\n");
    BitSet expected = new BitSet();
    expected.set(0, 4);
    expected.set(8);
    expected.set(10, 12);
    assertThat(ThreadPlacement.processors(sys, 0)).isEqualTo(expected);
    write("devices/system/node/node1/cpulist", "\n"); // memory without processors
    assertThat(ThreadPlacement.processors(sys, 1).isEmpty()).isTrue();
    assertThat(ThreadPlacement.processors(sys, -1).isEmpty()).isTrue();
  }
}

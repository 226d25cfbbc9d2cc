// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.testing.RequiresNativeLibrary;
import java.util.BitSet;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.Test;

@RequiresNativeLibrary
class ThreadPlacementTest {
  private static BitSet processors(int... numbers) {
    BitSet set = new BitSet();
    for (int number : numbers) {
      set.set(number);
    }
    return set;
  }

  @Test
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
  void shouldNotBindTheThreadIfTheProcessorsAreUnusable() {
    BitSet before = ThreadPlacement.current();
    assertThat(ThreadPlacement.bindTo(processors()).orElseThrow()).contains("unknown");
    assertThat(ThreadPlacement.bindTo(processors(8191)).orElseThrow()).contains("may use none");
    assertThat(ThreadPlacement.current()).isEqualTo(before);
  }
}

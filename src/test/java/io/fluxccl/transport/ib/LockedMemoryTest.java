// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.ib;

import static org.assertj.core.api.Assertions.assertThat;

import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class LockedMemoryTest {
  private static final String ALL_BUT_LOCKING = "000001ffffffbfff";
  private static final String ALL = "000001ffffffffff";

  @TempDir private Path process;

  private void write(String soft, String capabilities) throws Exception {
    Files.writeString(
        process.resolve("limits"),
        "Limit                     Soft Limit           Hard Limit           Units\n"
            + "Max locked memory         "
            + soft
            + "              unlimited            bytes\n");
    Files.writeString(process.resolve("status"), "Name:\tjava\nCapEff:\t" + capabilities + "\n");
  }

  @Test
  void shouldReturnTheSoftLimit() throws Exception {
    write("8388608", ALL_BUT_LOCKING);
    assertThat(LockedMemory.limit(process)).hasValue(8L << 20);
  }

  @Test
  void shouldReturnNoLimitIfTheProcessMayIgnoreIt() throws Exception {
    write("8388608", ALL);
    assertThat(LockedMemory.limit(process)).isEmpty();
  }

  @Test
  void shouldReturnNoLimitIfNoneIsSet() throws Exception {
    write("unlimited", ALL_BUT_LOCKING);
    assertThat(LockedMemory.limit(process)).isEmpty();
    assertThat(LockedMemory.limit(process.resolve("none"))).isEmpty();
  }
}

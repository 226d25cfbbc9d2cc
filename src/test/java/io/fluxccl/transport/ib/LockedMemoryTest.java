// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.ib;

import static org.assertj.core.api.Assertions.assertThat;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.OptionalLong;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

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

  @ParameterizedTest
  @CsvSource({
    "8388608, " + ALL_BUT_LOCKING + ", 8388608",
    "8388608, " + ALL + ",",
    "unlimited, " + ALL_BUT_LOCKING + ","
  })
  void shouldReturnTheSoftLimitUnlessNoneHolds(String soft, String capabilities, Long limit)
      throws Exception {
    write(soft, capabilities);
    OptionalLong found = IbTransport.LockedMemory.limit(process);
    assertThat(found).isEqualTo(limit == null ? OptionalLong.empty() : OptionalLong.of(limit));
    assertThat(IbTransport.LockedMemory.limit(process.resolve("none"))).isEmpty();
  }
}

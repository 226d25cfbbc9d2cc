// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.spark;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.io.IOException;
import org.apache.spark.SparkException;
import org.junit.jupiter.api.Test;

/** All tasks are threads of this JVM. */
class LocalModeTest extends BarrierStageContract {
  @Override
  String master() {
    return "local[4]";
  }

  @Test
  void shouldFailTheJobWhenATaskFailsInEveryAttempt() throws IOException {
    assertThatThrownBy(
            () ->
                train(
                    2,
                    attempt -> {
                      throw new IllegalStateException("on purpose");
                    }))
        .isInstanceOf(SparkException.class)
        .hasMessageContaining("on purpose");
    assertThat(written("attempt 3")).isEqualTo(4);
  }
}

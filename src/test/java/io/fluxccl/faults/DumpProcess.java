// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.faults;

import static org.assertj.core.api.Assertions.assertThat;
import static org.awaitility.Awaitility.await;

import io.fluxccl.cli.Main;
import io.fluxccl.testing.TestJvms;
import io.fluxccl.testkit.ProcessRank;
import java.time.Duration;
import java.util.List;
import java.util.Map;

/**
 * {@code fluxccl dump} as a process of its own, for what belongs to a process: its host, its
 * environment, and classes that are not loaded yet.
 *
 * @param prefix what its command starts with; may be empty
 * @param variables of its environment
 */
record DumpProcess(List<String> prefix, Map<String, String> variables) {
  private static final Duration PATIENCE = Duration.ofSeconds(40);

  /**
   * Returns a pattern of the line in which a dump reports that two ranks wait for a third. The
   * third may have stopped after it had sent its part of a call to only one of them. This one then
   * waits in the next call, and the dump names the first call and the rank in it.
   */
  static String waiting(int one, int other) {
    return "(?:ranks %d and %d wait|rank (?:%d|%d) waits)".formatted(one, other, one, other);
  }

  /** Requests dumps until one matches. */
  void verdict(String target, String pattern) {
    await(pattern)
        .atMost(PATIENCE)
        .untilAsserted(() -> assertThat(run(target)).containsPattern(pattern));
  }

  private String run(String target) {
    // On a machine that does much else, ranks need long for their part of TLS.
    try (ProcessRank asker =
        TestJvms.withLog(1, Main.class, "dump", "--limit", "4000", target)
            .prefix(prefix)
            .removeVariables(TestJvms::isOfJob)
            .variables(variables)
            .limit(PATIENCE)
            .startRank(0)) {
      asker.end();
      return asker.output();
    }
  }
}

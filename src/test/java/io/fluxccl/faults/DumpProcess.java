// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.faults;

import static org.awaitility.Awaitility.await;

import io.fluxccl.cli.Main;
import io.fluxccl.testing.TestJvms;
import io.fluxccl.testkit.ProcessRank;
import io.fluxccl.testkit.ProcessRanks;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

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

  /** Requests dumps until one matches, and returns the match. */
  Matcher verdict(String target, String pattern) {
    Pattern expected = Pattern.compile(pattern);
    List<Matcher> said = new ArrayList<>();
    await(pattern)
        .atMost(PATIENCE)
        .untilAsserted(
            () -> {
              String out = run(target);
              Matcher matcher = expected.matcher(out);
              said.add(matcher);
              if (!matcher.find()) {
                throw new AssertionError(out);
              }
            });
    return said.get(said.size() - 1);
  }

  private String run(String target) {
    // On a machine that does much else, ranks need long for their part of TLS.
    try (ProcessRank asker =
        ProcessRanks.builder(1, Main.class)
            .prefix(prefix)
            .variables(variables)
            .jvmOptions(TestJvms.ofBuild().toArray(String[]::new))
            .jvmOptions("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
            .arguments("dump", "--limit", "4000", target)
            .limit(PATIENCE)
            .startRank(0)) {
      asker.end();
      return asker.output();
    }
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.testing;

import static java.util.stream.Collectors.counting;
import static java.util.stream.Collectors.groupingBy;

import io.fluxccl.testing.TestOutcome.Kind;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.stream.Stream;

/**
 * The results of one class's tests.
 *
 * @param name the class's
 * @param outcomes in the order of the tests; none is only started
 * @param seconds run time of its process
 */
record TestClassResult(String name, List<TestOutcome> outcomes, double seconds) {
  private static final int REASON_LINES = 6;

  /**
   * The result of what a process noted.
   *
   * @param noted its lines, in their order
   * @param death why the process ended early, or null if it ended as it should
   */
  static TestClassResult of(String name, List<TestOutcome> noted, String death, double seconds) {
    Map<String, TestOutcome> last = new LinkedHashMap<>();
    noted.forEach(outcome -> last.put(outcome.name(), outcome));
    boolean unfinished = last.values().stream().anyMatch(each -> each.kind() == Kind.STARTED);
    last.replaceAll(
        (test, outcome) ->
            outcome.kind() == Kind.STARTED
                ? new TestOutcome(Kind.FAILED, test, "not finished: " + death)
                : outcome);
    List<TestOutcome> outcomes = new ArrayList<>(last.values());
    if (death != null && !unfinished) {
      outcomes.add(new TestOutcome(Kind.FAILED, "(the process)", death));
    } else if (outcomes.isEmpty()) {
      outcomes.add(new TestOutcome(Kind.FAILED, "(the class)", "has no test that was run"));
    }
    return new TestClassResult(name, List.copyOf(outcomes), seconds);
  }

  long count(Kind kind) {
    return of(kind).count();
  }

  private Stream<TestOutcome> of(Kind kind) {
    return outcomes.stream().filter(outcome -> outcome.kind() == kind);
  }

  /** One line for the class and some for each test that failed or was skipped. */
  String text() {
    StringBuilder text =
        new StringBuilder(
            String.format(
                Locale.ROOT,
                "%-55s %3d passed %3d failed %3d skipped %7.1f s%n",
                name.replace("io.fluxccl.", ""),
                count(Kind.PASSED),
                count(Kind.FAILED),
                count(Kind.SKIPPED),
                seconds));
    of(Kind.FAILED)
        .forEach(
            outcome ->
                text.append("    FAILED  ")
                    .append(outcome.name() + ": " + firstLines(outcome.reason()) + "\n"));
    of(Kind.SKIPPED)
        .collect(groupingBy(TestOutcome::reason, LinkedHashMap::new, counting()))
        .forEach((reason, times) -> text.append("    skipped " + times + ": " + reason + "\n"));
    return text.toString();
  }

  private static String firstLines(String reason) {
    List<String> lines = reason.lines().limit(REASON_LINES).toList();
    return String.join("\n            ", lines);
  }
}

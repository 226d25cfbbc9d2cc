// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.testing;

/**
 * The outcome of one test, as one line of a file to which the test process appends.
 *
 * @param kind how far it got
 * @param name the test's, unique in its class
 * @param reason why it failed or was skipped; empty otherwise
 */
record TestOutcome(Kind kind, String name, String reason) {
  enum Kind {
    STARTED,
    PASSED,
    FAILED,
    SKIPPED
  }

  /** One line without its end. */
  String line() {
    return kind + "\t" + escape(name) + "\t" + escape(reason);
  }

  /** The twin of {@link #line()}. */
  static TestOutcome parse(String line) {
    String[] fields = line.split("\t", -1);
    if (fields.length != 3) {
      throw new IllegalArgumentException("not an outcome: " + line);
    }
    return new TestOutcome(
        Kind.valueOf(fields[0]), fields[1].translateEscapes(), fields[2].translateEscapes());
  }

  private static String escape(String text) {
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t").replace("\r", "");
  }
}

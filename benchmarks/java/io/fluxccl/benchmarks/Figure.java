// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.benchmarks;

import com.fasterxml.jackson.core.JsonGenerator;
import java.io.IOException;
import java.util.Locale;

/**
 * One measured number.
 *
 * @param section it belongs to
 * @param what was measured, and how
 * @param value the number; NaN where there is none
 * @param unit of the value
 * @param goal what it should reach, such as {@code >= 0.52}; empty for none
 * @param note why there is no number, or empty
 */
record Figure(String section, String what, double value, String unit, String goal, String note) {
  private static final String FIELD = "\t";
  private static final int FIELDS = 6;

  /** One line without its end, as {@link #parse} takes it. */
  String line() {
    return String.join(FIELD, section, what, Double.toString(value), unit, goal, note);
  }

  /** The twin of {@link #line()}. */
  static Figure parse(String line) {
    String[] fields = line.split(FIELD, -1);
    if (fields.length != FIELDS) {
      throw new IllegalArgumentException("not a figure: " + line);
    }
    return new Figure(
        fields[0], fields[1], Double.parseDouble(fields[2]), fields[3], fields[4], fields[5]);
  }

  /** Whether the goal is reached; true where there is none. */
  boolean reached() {
    if (goal.isEmpty()) {
      return true;
    }
    double bound = Double.parseDouble(goal.substring(2).trim());
    return goal.startsWith(">=") ? value >= bound : value <= bound;
  }

  /** A row of the table. */
  String row() {
    String number = Double.isNaN(value) ? "-" : String.format(Locale.ROOT, "%.3f", value);
    String verdict = goal.isEmpty() ? "" : goal + (reached() ? "  reached" : "  MISSED");
    return String.format(
            Locale.ROOT, "%-11s %-58s %12s %-8s %s %s", section, what, number, unit, verdict, note)
        .stripTrailing();
  }

  void write(JsonGenerator json) throws IOException {
    json.writeStartObject();
    json.writeStringField("section", section);
    json.writeStringField("what", what);
    if (!Double.isNaN(value)) {
      json.writeNumberField("value", value);
    }
    json.writeStringField("unit", unit);
    if (!goal.isEmpty()) {
      json.writeStringField("goal", goal);
      json.writeBooleanField("reached", reached());
    }
    if (!note.isEmpty()) {
      json.writeStringField("note", note);
    }
    json.writeEndObject();
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl;

import java.util.Arrays;
import java.util.Locale;
import java.util.function.Function;
import java.util.stream.Collectors;

/**
 * Formats text with ASCII digits and signs in every locale, because ranks, tools and files exchange
 * it. Stateless.
 */
@Experimental
public final class Text {
  private Text() {}

  /**
   * Returns formatted text in {@link Locale#ROOT}.
   *
   * @param format as {@link String#format(Locale, String, Object...)} takes it
   * @param arguments for its specifiers
   */
  public static String of(String format, Object... arguments) {
    return String.format(Locale.ROOT, format, arguments);
  }

  /**
   * Returns the value that a label names.
   *
   * @param field what the value is for, for the message
   * @param text the label
   * @param values those that there are
   * @param label returns the label of a value
   * @param <T> the type of the values
   * @throws InvalidUsage if no value has that label; the message lists the labels
   */
  public static <T> T choose(String field, String text, T[] values, Function<T, String> label) {
    for (T value : values) {
      if (label.apply(value).equals(text)) {
        return value;
      }
    }
    String allowed = Arrays.stream(values).map(label).collect(Collectors.joining(", "));
    throw new InvalidUsage(field + "=" + text + " is none of " + allowed);
  }
}

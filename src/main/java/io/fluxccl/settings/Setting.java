// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.settings;

import io.fluxccl.Experimental;
import io.fluxccl.InvalidUsage;
import io.fluxccl.LocalFiles;
import java.math.BigDecimal;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;

/**
 * An environment variable of FluxCCL: a row of the table {@code settings.txt}. Immutable.
 *
 * @param name of the variable
 * @param property the system property that precedes it, or empty
 * @param type {@code text}, {@code secret}, {@code flag}, {@code seconds}, {@code micros}, {@code
 *     file}, {@code number} with the least and the largest, or {@code word} and the words it may be
 * @param unset what holds without it, as the pages say it
 * @param meaning what it does, as the pages say it
 */
@Experimental
public record Setting(String name, String property, String type, String unset, String meaning) {
  private static final String SECRET = "secret";

  static Setting parse(String row) {
    String[] fields = Arrays.stream(row.split("\\|", 5)).map(String::strip).toArray(String[]::new);
    return new Setting(fields[0], fields[1], fields[2], fields[3], fields[4]);
  }

  /** Returns whether its text must stay out of logs. */
  public boolean isSecret() {
    return type.equals(SECRET);
  }

  /**
   * Returns the value of a text.
   *
   * @throws InvalidUsage with the allowed values only, without name and text
   */
  Object read(String text) {
    List<String> words = List.of(type.split(" "));
    return switch (words.get(0)) {
      case "text", SECRET -> text;
      case "flag" -> word(text, List.of("0", "1")).equals("1");
      case "word" -> word(text, words.subList(1, words.size()));
      case "number" -> number(text, Integer.parseInt(words.get(1)), Integer.parseInt(words.get(2)));
      case "seconds" -> seconds(text);
      case "micros" -> micros(text);
      case "file" -> LocalFiles.path("file", text);
      default -> throw new IllegalStateException(name + " has no type, but " + type);
    };
  }

  private static String word(String text, List<String> words) {
    int last = words.size() - 1;
    return words.stream()
        .filter(text::equalsIgnoreCase)
        .findFirst()
        .orElseThrow(
            () ->
                InvalidUsage.of(
                    "give %s or %s", String.join(", ", words.subList(0, last)), words.get(last)));
  }

  static int number(String text, int min, int max) {
    try {
      int number = Integer.parseInt(text);
      if (number >= min && number <= max) {
        return number;
      }
    } catch (NumberFormatException e) {
      throw new InvalidUsage("give " + min + " to " + max, e);
    }
    throw InvalidUsage.of("give %s to %s", min, max);
  }

  private static Duration seconds(String text) {
    try {
      return Duration.ofNanos(new BigDecimal(text).movePointRight(9).longValueExact());
    } catch (ArithmeticException | NumberFormatException e) {
      throw new InvalidUsage("give seconds, for example 30 or 0.5, at most 9e9", e);
    }
  }

  private static float micros(String text) {
    try {
      float micros = new BigDecimal(text).floatValue();
      if (micros >= 0) {
        return micros;
      }
    } catch (NumberFormatException e) {
      throw new InvalidUsage("give microseconds, for example 25.5", e);
    }
    throw new InvalidUsage("give microseconds, 0 or more");
  }
}

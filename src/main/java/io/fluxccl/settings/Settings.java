// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.settings;

import io.fluxccl.Experimental;
import io.fluxccl.InvalidUsage;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.function.Function;
import java.util.function.UnaryOperator;
import java.util.regex.Pattern;
import java.util.stream.Stream;

/**
 * The environment variables and system properties of a process. The table {@code settings.txt}
 * declares each variable of FluxCCL once, with those of its command line; a test compares the
 * tables of the pages with it. A variable that is blank is not set here. Immutable.
 *
 * @param variables by name
 * @param properties returns the value of a system property, or null
 */
@Experimental
public record Settings(Map<String, String> variables, UnaryOperator<String> properties) {
  private static final String PREFIX = "FLUXCCL_";
  private static final List<Setting> TABLE = table();

  /**
   * Matches the variables that Kubernetes sets for a service whose name begins with {@code
   * fluxccl}: NAME_SERVICE_HOST, NAME_SERVICE_PORT, NAME_PORT=tcp://..., NAME_PORT_80_TCP_ADDR and
   * the like.
   */
  private static final Pattern OF_SERVICE =
      Pattern.compile(
          "FLUXCCL_(?:\\w+_)?(?:SERVICE_(?:HOST|PORT(?:_\\w+)?)=.*"
              + "|PORT(?:_[0-9]+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?=.*|=\\w+://.*))");

  /** Returns the settings of this process. */
  public static Settings ofProcess() {
    return new Settings(System.getenv(), System::getProperty);
  }

  /** Returns the settings of an environment, without system properties. */
  public static Settings of(Map<String, String> variables) {
    return new Settings(Map.copyOf(variables), name -> null);
  }

  /** Returns the table. */
  public static List<Setting> all() {
    return TABLE;
  }

  private static List<Setting> table() {
    try (BufferedReader in =
        new BufferedReader(
            new InputStreamReader(
                Settings.class.getResourceAsStream("settings.txt"), StandardCharsets.UTF_8))) {
      return in.lines().filter(line -> !line.startsWith("#")).map(Setting::parse).toList();
    } catch (IOException e) {
      throw new UncheckedIOException("settings.txt can't be read", e);
    }
  }

  /** Returns a variable's text, or null if it is not set; variables of other programs, too. */
  public String text(String name) {
    String value = variables.get(name);
    return value == null || value.isBlank() ? null : value.strip();
  }

  /** Returns a flag: false if it is not set. */
  public boolean flag(String name) {
    return value(name, Boolean.class, Function.identity()).orElse(false);
  }

  /** Returns a length of time, if it is set. */
  public Optional<Duration> seconds(String name) {
    return seconds(name, Function.identity());
  }

  /** Returns what {@code further} makes of a length of time, if it is set. */
  public <R> Optional<R> seconds(String name, Function<Duration, R> further) {
    return value(name, Duration.class, further);
  }

  /** Returns a number, if it is set. */
  public Optional<Integer> number(String name) {
    return number(name, Function.identity());
  }

  /** Returns what {@code further} makes of a number, if it is set. */
  public <R> Optional<R> number(String name, Function<Integer, R> further) {
    return value(name, Integer.class, further);
  }

  /** Returns a file or folder, if it is set. */
  public Optional<Path> file(String name) {
    return value(name, Path.class, Function.identity());
  }

  /** Returns a number with a fraction, if it is set. */
  public Optional<Float> decimal(String name) {
    return value(name, Float.class, Function.identity());
  }

  /** Returns a word or a text, if it is set. */
  public Optional<String> word(String name) {
    return word(name, Function.identity());
  }

  /**
   * Returns what {@code further} makes of a word or a text, if it is set.
   *
   * @param further makes a type of a higher layer, or throws {@link InvalidUsage} with the allowed
   *     values
   * @throws InvalidUsage naming the variable, if its text makes no sense; so do the other methods
   */
  public <R> Optional<R> word(String name, Function<String, R> further) {
    return value(name, String.class, further);
  }

  private <T, R> Optional<R> value(String name, Class<T> type, Function<T, R> further) {
    Setting row =
        TABLE.stream()
            .filter(each -> each.name().equals(name))
            .findFirst()
            .orElseThrow(() -> new IllegalArgumentException(name + " is no row of settings.txt"));
    String property = row.property().isEmpty() ? null : properties.apply(row.property());
    boolean byProperty = property != null && !property.isBlank();
    String text = byProperty ? property.strip() : text(name);
    try {
      return Optional.ofNullable(text).map(row::read).map(type::cast).map(further);
    } catch (InvalidUsage e) {
      String source = byProperty ? row.property() : name;
      throw new InvalidUsage(
          source + (row.isSecret() ? ": " : "=" + text + ": ") + e.getMessage(), e);
    }
  }

  /** Returns the first of these names, which spaces part, that is set; or null. */
  public String firstSet(String names) {
    return Stream.of(names.split(" ")).filter(each -> text(each) != null).findFirst().orElse(null);
  }

  /**
   * Returns the number of the first of these names that is set, which may be those of others.
   *
   * @param names parted by spaces
   * @throws InvalidUsage naming the variable, if it is no number from {@code min} to {@code max}
   */
  public OptionalInt number(String names, int min, int max) {
    String name = firstSet(names);
    if (name == null) {
      return OptionalInt.empty();
    }
    try {
      return OptionalInt.of(Setting.number(text(name), min, max));
    } catch (InvalidUsage e) {
      throw new InvalidUsage(name + "=" + text(name) + ": " + e.getMessage(), e);
    }
  }

  /**
   * Refuses a variable whose text makes no sense, also if nothing asks for it. File names are
   * checked when the files are opened.
   *
   * @throws InvalidUsage naming the first one
   */
  public void check() {
    TABLE.stream()
        .filter(row -> !row.type().equals("file"))
        .forEach(row -> value(row.name(), Object.class, Function.identity()));
  }

  /**
   * Returns a line for each variable whose name begins with FLUXCCL_ and that nothing reads: most
   * probably a typing error. Variables that Kubernetes sets for a service are none.
   */
  public List<String> unknown() {
    return variables.keySet().stream()
        .filter(name -> name.startsWith(PREFIX))
        .filter(name -> TABLE.stream().noneMatch(row -> row.name().equals(name)))
        .filter(name -> !OF_SERVICE.matcher(name + "=" + variables.get(name)).matches())
        .sorted()
        .map(name -> name + " is set, which nothing reads; did you mean " + nearest(name))
        .toList();
  }

  /** Returns no text of a variable: some are secret. */
  @Override
  public String toString() {
    return "Settings(" + variables.size() + " variables)";
  }

  private static String nearest(String name) {
    return TABLE.stream()
        .map(Setting::name)
        .min(Comparator.comparingInt(each -> distance(name, each)))
        .orElseThrow();
  }

  /** Returns how many characters must be put in, left out or changed to get from one to another. */
  private static int distance(String one, String other) {
    int[] row = new int[other.length() + 1];
    for (int j = 0; j < row.length; j++) {
      row[j] = j;
    }
    for (int i = 1; i <= one.length(); i++) {
      int diagonal = row[0];
      row[0] = i;
      for (int j = 1; j < row.length; j++) {
        int changed = diagonal + (one.charAt(i - 1) == other.charAt(j - 1) ? 0 : 1);
        diagonal = row[j];
        row[j] = Math.min(changed, 1 + Math.min(row[j], row[j - 1]));
      }
    }
    return row[other.length()];
  }
}

package io.fluxccl.cli;

import io.fluxccl.InvalidUsage;
import java.util.List;
import java.util.Locale;
import java.util.Map;

/**
 * What the command line logs. The backend reads the variable itself (logback-cli.xml), but takes a
 * word that it does not know for debug.
 */
final class LogLevel {
  /** The environment variable that names one; warn where it is not set. */
  static final String VARIABLE = "FLUXCCL_LOG";

  private static final List<String> NAMES =
      List.of("error", "warn", "info", "debug", "trace", "off");

  private LogLevel() {}

  /**
   * Checks the variable.
   *
   * @throws InvalidUsage if it names no level
   */
  static void check(Map<String, String> environment) {
    String level = environment.getOrDefault(VARIABLE, "");
    if (level.isBlank() || NAMES.contains(level.strip().toLowerCase(Locale.ROOT))) {
      return;
    }
    throw new InvalidUsage(VARIABLE + "=" + level + " is none of " + String.join(", ", NAMES));
  }
}

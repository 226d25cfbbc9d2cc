package io.fluxccl.cli;

import java.util.List;
import java.util.Map;

/**
 * The entry point of the command line: {@code fluxccl perf all-reduce}, {@code fluxccl launch},
 * {@code fluxccl info}. Checks that the libraries are there which only the command line needs.
 */
public final class Main {
  private static final List<Map.Entry<String, String>> LIBRARIES =
      List.of(
          Map.entry("picocli.CommandLine", "info.picocli:picocli"),
          Map.entry(
              "com.fasterxml.jackson.core.JsonFactory", "com.fasterxml.jackson.core:jackson-core"));

  private Main() {}

  /**
   * Runs a command and exits with its code: 0 success, 1 a failure, 2 wrong usage.
   *
   * @param args the command line
   */
  public static void main(String[] args) {
    List<String> missing =
        LIBRARIES.stream()
            .filter(library -> !isPresent(library.getKey()))
            .map(Map.Entry::getValue)
            .toList();
    if (!missing.isEmpty()) {
      System.err.println(
          "fluxccl: the command line needs libraries that the class path does not have; add "
              + String.join(" and ", missing));
      System.exit(ExitCode.USAGE);
    }
    RootCommand.start(new GroupBackend(), Main.class, args);
  }

  private static boolean isPresent(String className) {
    try {
      Class.forName(className, false, Main.class.getClassLoader());
      return true;
    } catch (ClassNotFoundException e) {
      return false;
    }
  }
}

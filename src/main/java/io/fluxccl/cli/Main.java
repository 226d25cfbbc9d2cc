// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import io.fluxccl.OptionalLibrary;

/**
 * The entry point of the command line: {@code fluxccl perf all-reduce}, {@code fluxccl launch},
 * {@code fluxccl info}. Checks that the library is there which only the command line needs.
 */
public final class Main {
  private Main() {}

  /**
   * Runs a command and exits with its code: 0 success, 1 a failure, 2 wrong usage.
   *
   * @param args the command line
   */
  public static void main(String[] args) {
    OptionalLibrary.PICOCLI
        .missingReason()
        .ifPresent(
            missing -> {
              System.err.println("fluxccl: the command line can't start: " + missing);
              System.exit(ExitCode.USAGE);
            });
    RootCommand.start(new GroupBackend(), Main.class, args);
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatCode;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.testing.SourceFiles;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import picocli.CommandLine.ParameterException;

/** The command line takes every command that a page shows: its options are there and fit. */
class CommandsOfPagesTest {
  /** Up to a remark, a pipe, a redirection, or the launched program. */
  private static final Pattern COMMAND =
      Pattern.compile(
          "(?m)(?:\\./|bin/)fluxccl (perf|bench|info|launch|dump)\\b((?: (?!#|>|2>|&|--"
              + " )[^\\s`|'\";)]+)*)");

  @Test
  void shouldTakeEveryCommandOfThePages() {
    List<String> commands = new ArrayList<>();
    for (Path page : pages()) {
      Matcher command = COMMAND.matcher(SourceFiles.text(page));
      while (command.find()) {
        boolean isLaunch = command.group(1).equals("launch");
        // In the text, its name only.
        if (!isLaunch || !command.group(2).isEmpty()) {
          commands.add(command.group(1) + command.group(2) + (isLaunch ? " -- program" : ""));
        }
      }
    }
    assertThat(commands).hasSizeGreaterThan(25);
    assertThat(commands)
        .allSatisfy(
            command -> assertThatCode(() -> read(command)).as(command).doesNotThrowAnyException());
    assertThatThrownBy(() -> read("perf all-reduce --no-such-option"))
        .isInstanceOf(ParameterException.class);
  }

  /** Without running it. */
  private static void read(String command) {
    CliContext context =
        new CliContext(
            new FakeBackend(), FakePerfMain.class.getName(), Map.of(), System.out, System.err);
    String[] args = command.split(" ");
    if (args[0].equals("bench")) {
      String[] rest = Arrays.copyOfRange(args, 1, args.length);
      RootCommand.commandLine(BenchMain.PROGRAM, BenchMain.commands(context), context, rest)
          .parseArgs(rest);
      return;
    }
    RootCommand.commandLine(context).parseArgs(args);
  }

  private static List<Path> pages() {
    return Stream.of("README.md", "docs", "samples")
        .flatMap(folder -> SourceFiles.under(Path.of(folder), "md").stream())
        .filter(page -> !page.toString().contains("/target/"))
        .toList();
  }
}

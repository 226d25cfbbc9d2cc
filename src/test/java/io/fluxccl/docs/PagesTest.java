// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.docs;

import static org.assertj.core.api.Assertions.assertThat;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

/** The guide's pages show code of these tests, or of a sample that has tests, or of none. */
class PagesTest {
  private static final int MOST_WORDS = 40_000;

  @Test
  void shouldShowOnlyCodeThatIsTested() throws IOException {
    List<String> tested = new ArrayList<>();
    tested.addAll(contents(Path.of("src/test/java/io/fluxccl/docs"), ".+\\.java"));
    Path sample = Path.of("samples/step-server/java/io/fluxccl/samples/stepserver");
    tested.addAll(contents(sample, ".+\\.java"));
    compare("java", tested);
  }

  @Test
  void shouldShowOnlyKernelsThatAreTested() throws IOException {
    compare("cuda", contents(Path.of("src/test/resources/cuda"), ".+\\.cu"));
  }

  @Test
  void shouldShowOnlyKotlinThatIsTested() throws IOException {
    Path tests = Path.of("samples/kotlin/src/test/kotlin/io/fluxccl/samples/kotlin");
    compare("kotlin", contents(tests, ".+\\.kt"));
  }

  @Test
  void shouldKeepTheGuideShort() throws IOException {
    long words = 0;
    for (String folder : List.of("docs", "docs/reference")) {
      for (String page : contents(Path.of(folder), ".+\\.md")) {
        words += Pattern.compile("\\S+").matcher(page).results().count();
      }
    }
    assertThat(words).isLessThanOrEqualTo(MOST_WORDS);
  }

  /** The others are run by .ci/run. */
  @Test
  void shouldKnowWhichCommandsCanNotRun() throws Exception {
    Process check =
        new ProcessBuilder("src/test/docs/commands", "--check").redirectErrorStream(true).start();
    String said = new String(check.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    assertThat(check.waitFor()).as(said).isZero();
  }

  private static void compare(String language, List<String> files) throws IOException {
    Pattern blocks = Pattern.compile("(?s)```" + language + "\n(.*?)```");
    String tested = squeezed(String.join("\n", files));
    for (String page : pages()) {
      Matcher block = blocks.matcher(page);
      while (block.find()) {
        String shown = block.group(1);
        assertThat(tested.contains(squeezed(shown))).as("no test has\n%s", shown).isTrue();
      }
    }
  }

  private static List<String> pages() throws IOException {
    List<String> pages = contents(Path.of("docs"), ".+\\.md");
    assertThat(pages).hasSizeGreaterThan(15);
    List<String> all = new ArrayList<>(pages);
    all.addAll(contents(Path.of("docs/reference"), ".+\\.md"));
    all.add(read(Path.of("README.md")));
    return all;
  }

  private static List<String> contents(Path folder, String name) throws IOException {
    try (Stream<Path> files = Files.list(folder)) {
      return files
          .filter(file -> file.getFileName().toString().matches(name))
          .map(PagesTest::read)
          .toList();
    }
  }

  private static String read(Path file) {
    try {
      return Files.readString(file);
    } catch (IOException e) {
      throw new java.io.UncheckedIOException(e);
    }
  }

  private static String squeezed(String code) {
    // Lines are broken at other places, and comments with them.
    return code.replaceAll("//[^\n]*", "").replaceAll("\\s+", "");
  }
}

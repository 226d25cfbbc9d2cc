// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.docs;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.testing.SourceFiles;
import io.fluxccl.testing.TestJvms;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;

/**
 * The guide's pages show code of these tests, or of a sample that has tests, or of none, or a
 * program that {@code src/test/docs/commands} compiles from the page and runs.
 */
class PagesTest {
  private static final int MOST_WORDS = 40_000;
  private static final String PROGRAM = "public class Hello {";

  @Test
  void shouldShowOnlyCodeThatIsTested() {
    List<String> tested = new ArrayList<>(texts("src/test/java/io/fluxccl/docs", "java"));
    tested.addAll(TestsOfPagesTest.sources().values());
    tested.addAll(texts("samples/step-server/java/io/fluxccl/samples/stepserver", "java"));
    compare("java", tested);
  }

  @Test
  void shouldShowOnlyKernelsThatAreTested() {
    compare("cuda", texts("src/test/resources/cuda", "cu"));
  }

  @Test
  void shouldShowOnlyKotlinThatIsTested() {
    compare("kotlin", texts("samples/kotlin/src/test/kotlin/io/fluxccl/samples/kotlin", "kt"));
  }

  @Test
  void shouldKeepTheGuideShort() {
    long words =
        texts("docs", "md").stream()
            .mapToLong(page -> Pattern.compile("\\S+").matcher(page).results().count())
            .sum();
    assertThat(words).isLessThanOrEqualTo(MOST_WORDS);
  }

  /** The others are run by .ci/run. */
  @Test
  void shouldKnowWhichCommandsCanNotRun() {
    TestJvms.run("src/test/docs/commands", "--check");
  }

  private static void compare(String language, List<String> files) {
    Pattern blocks = Pattern.compile("(?s)```" + language + "\n(.*?)```");
    String tested = squeezed(String.join("\n", files));
    for (String page : pages()) {
      Matcher block = blocks.matcher(page);
      while (block.find()) {
        String shown = block.group(1);
        assertThat(tested.contains(squeezed(shown)) || shown.contains(PROGRAM))
            .as("no test has\n%s", shown)
            .isTrue();
      }
    }
  }

  private static List<String> pages() {
    List<String> pages = new ArrayList<>(texts("docs", "md"));
    assertThat(pages).hasSizeGreaterThan(15);
    pages.add(SourceFiles.text(Path.of("README.md")));
    return pages;
  }

  private static List<String> texts(String folder, String ending) {
    return SourceFiles.under(Path.of(folder), ending).stream().map(SourceFiles::text).toList();
  }

  private static String squeezed(String code) {
    // Lines are broken at other places, and comments with them.
    return code.replaceAll("//[^\n]*", "").replaceAll("\\s+", "");
  }
}

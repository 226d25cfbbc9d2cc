// SPDX-License-Identifier: Apache-2.0
package io.fluxccl;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.testing.SourceFiles;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.function.Consumer;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

/**
 * Refuses phrases that leave a reader guessing which component does what: sentences without a named
 * subject, verbs without their object, words with several meanings. Reads comments, pages, and the
 * string literals of main code; {@code allowed-phrases.txt} lists false positives with reasons.
 */
class LanguageTest {
  private static final int MOST_ALLOWED = 200;
  private static final Path ALLOWED = Path.of("src/test/resources/io/fluxccl/allowed-phrases.txt");
  private static final List<Path> FOLDERS =
      Stream.of("src", "native", "samples", "benchmarks", "docs").map(Path::of).toList();
  private static final List<Path> PAGES =
      Stream.of("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
          .map(Path::of)
          .toList();

  /** Phrases, each with the fault that it stands for. */
  private static final String[] PHRASES = {
    // The subject is a clause.
    "^(@\\w+ (\\w+ )?)?(Who|Whom|Whose|Whoever|Whatever|What|That of|Those)\\b(?!.*\\?)",
    "^(The same(?!.{0,12}(holds|applies))|The rest (is|are) (of|guarded)|The others? first)",
    "^(Where|How (many|long|often|much|far))\\b(?!.*\\?)",
    // Later, at a higher address, over, or lagging.
    "\\bbehind\\b(?! (a |an )?(NAT|firewall|load balancer))",
    // Which component?
    "\\b(nobody|somebody|anybody|everybody|whoever|strangers?)\\b",
    "(?<!users )(?<!callers )\\b(who|whom)\\b",
    // Verbs without an object, or with several meanings.
    "\\b(is|are|was|were|be|been) told\\b|\\btold of\\b"
        + "|\\btells? (of|no|none|nothing|how|what|when|which|who|that|about|whether)\\b"
        + "|\\btells?[.;,]",
    "\\b(not|never|nobody|that|who|ranks?|they|have|has|had|those) (yet |now )?(comes?|came)\\b"
        + "(?! (from|with|first|back|in |at ))|\\b(is|are) gone\\b|\\bcomes? (too )?late\\b",
    "\\b(go|goes|gone|went|going) on\\b",
    "\\blets? (\\w+ )?go\\b|\\bsees? off\\b|\\bhands? on\\b|\\bfor want of\\b|\\bin vain\\b"
        + "|\\banew\\b|\\bmend(s|ed)?\\b|\\bbeyond use\\b|\\bone behind the other\\b|\\bheld up\\b"
        + "|\\bholds? up\\b|\\bhears?\\b",
    "\\b(is|are|was|were|be) of (this|that|the|another|one|all|none|which|its|no|two)\\b",
    "\\bso (many|much|long)\\b(?! (that|as))",
    "\\b(a look|looks? (at|whether|into)|looked (at|into))\\b",
    "\\b(says|said) (so|nothing|no more|how|what|why|which|that|of)\\b",
  };

  private static final Pattern PHRASE = Pattern.compile(String.join("|", PHRASES));

  private static final Pattern TEST_NAME =
      Pattern.compile(
          "\\bvoid (should\\w*(Who|Whom|Whose|What|Behind|Nobody|Somebody|Those|TheSame|Tells?"
              + "|Told|Comes?|Came|GoOn|GoesOn|LetGo|Stranger|Says?)(?=[A-Z(])\\w*)\\s*\\(");

  /** Text blocks, strings, characters and comments of Java, CUDA, C and Kotlin. */
  private static final Pattern TOKEN =
      Pattern.compile(
          "\"\"\"(?:\\\\.|[^\\\\])*?\"\"\"|\"(?:\\\\.|[^\"\\\\\\n])*\""
              + "|'(?:\\\\.|[^'\\\\\\n])+'|//[^\\n]*(?:\\n *//[^\\n]*)*|/\\*.*?\\*/",
          Pattern.DOTALL);

  private static final Pattern BLOCK =
      Pattern.compile("\\n\\s*(?=@\\w+)|<p>|<li>|</?[uo]l>|\\n\\s*\\n");

  private static final Pattern ITEM = Pattern.compile("^\\s*([-*]|\\d+\\.|#+)\\s+");

  /** Between paragraphs, items, rows of tables and headings. */
  private static final Pattern PAGE_BLOCK =
      Pattern.compile(
          "\\n\\s*\\n|\\n(?=\\s*(?:[-*]|\\d+\\.|#+)\\s)|\\n(?=\\s*\\|)"
              + "|(?<=\\n#{1,6} .{1,200})\\n");

  private static final Pattern SENTENCE_END = Pattern.compile("(?<=[.:;!?])\\s+(?=[A-Z@])");

  /** An allowed line: the file and a part of the sentence; a reason follows in the list. */
  private record Allowed(String file, String part) {}

  @Test
  void shouldUsePlainPhrases() throws IOException {
    List<Allowed> allowed = allowed();
    Set<Allowed> used = new HashSet<>();
    List<String> found = new ArrayList<>();
    for (Path file : files()) {
      String name = file.toString();
      sentences(
          file,
          sentence -> {
            if (PHRASE.matcher(sentence).find()) {
              List<Allowed> fitting =
                  allowed.stream()
                      .filter(one -> one.file.equals(name) && sentence.contains(one.part))
                      .toList();
              used.addAll(fitting);
              if (fitting.isEmpty()) {
                found.add(name + ": " + sentence);
              }
            }
          });
    }
    assertThat(found).as("sentences to rewrite").isEmpty();
    assertThat(allowed).as("allowed phrases that are still there").hasSameElementsAs(used);
  }

  @Test
  void shouldNameTestsByOutcomeAndCondition() {
    List<String> found = new ArrayList<>();
    for (Path file : files()) {
      Matcher name =
          TEST_NAME.matcher(file.toString().endsWith(".java") ? SourceFiles.text(file) : "");
      while (name.find()) {
        found.add(file + ": " + name.group(1));
      }
    }
    assertThat(found).isEmpty();
  }

  @Test
  void shouldFindPhrasesInEveryKindOfText() {
    List<String> found = new ArrayList<>();
    Consumer<String> add = sentence -> found.add(sentence);
    inCode("/** Sends. Whoever asks\n * gets {@link A b}. */ // Joined\n  // lines.\n", true, add);
    inCode("int a; // x behind y\n\"a message that goes on\" \"word\" '\"'", true, add);
    inPage("Text `who`\nof [a](b.md) two lines.\n\n```\nwho\n```\n\n| who | b |\n- item", add);
    assertThat(found)
        .containsExactly(
            "Sends.",
            "Whoever asks gets b.",
            "Joined lines.",
            "x behind y",
            "a message that goes on",
            "Text X of a two lines.",
            "who",
            "b",
            "item");
    assertThat(PHRASE.matcher("Whoever asks gets b.").find()).isTrue();
    assertThat(PHRASE.matcher("Sends.").find()).isFalse();
    assertThat(TEST_NAME.matcher("void shouldDropWhoSaysNothing() {").find()).isTrue();
  }

  private static List<Allowed> allowed() throws IOException {
    try (Stream<String> lines = Files.lines(ALLOWED)) {
      List<String[]> rows =
          lines
              .filter(line -> !line.isBlank() && !line.startsWith("#"))
              .map(line -> line.split("\t"))
              .toList();
      assertThat(rows).hasSizeLessThanOrEqualTo(MOST_ALLOWED);
      assertThat(rows).as("file, part and reason").allMatch(row -> row.length == 3);
      return rows.stream().map(row -> new Allowed(row[0], row[1])).toList();
    }
  }

  private static List<Path> files() {
    List<Path> files = new ArrayList<>(PAGES);
    for (Path folder : FOLDERS) {
      SourceFiles.under(folder, "java", "kt", "cu", "cuh", "c", "h", "cpp", "md").stream()
          .filter(path -> !path.toString().contains("/target/"))
          .filter(path -> !path.endsWith("RESULTS.md") && !path.endsWith("LanguageTest.java"))
          .forEach(files::add);
    }
    return files;
  }

  private static void sentences(Path file, Consumer<String> to) {
    if (file.toString().endsWith(".md")) {
      inPage(SourceFiles.text(file), to);
    } else {
      inCode(SourceFiles.text(file), file.startsWith("src/main") || file.startsWith("native"), to);
    }
  }

  /** Passes each sentence of the comments, and of the string literals with a space in them. */
  private static void inCode(String code, boolean withStrings, Consumer<String> to) {
    Matcher token = TOKEN.matcher(code);
    while (token.find()) {
      String text = token.group();
      if (text.startsWith("//")) {
        split(text.replaceFirst("// SPDX.*", "").replaceAll("(?m)^ *//", ""), to);
      } else if (text.startsWith("/*")) {
        inComment(text, to);
      } else if (withStrings && text.startsWith("\"") && text.strip().contains(" ")) {
        split(text.replaceAll("^\"+|\"+$", ""), to);
      }
    }
  }

  private static void inComment(String comment, Consumer<String> to) {
    String text =
        comment
            .replaceAll("^/\\*+|\\*+/$", "")
            .replaceAll("(?m)^\\s*\\*\\s?", "")
            .replaceAll("(?s)<pre>.*?</pre>", " ")
            .replaceAll("\\{@(?:link|linkplain)\\s+[^\\s}]+\\s+([^}]+)\\}", "$1")
            .replaceAll("\\{@\\w+\\s+([^}]*)\\}", "$1");
    for (String block : BLOCK.split(text)) {
      split(block, to);
    }
  }

  /** Passes each sentence of a Markdown page, without code. */
  private static void inPage(String page, Consumer<String> to) {
    String text = page.replaceAll("(?ms)^\\s*```.*?^\\s*```[^\\n]*", "\n");
    for (String block : PAGE_BLOCK.split(text)) {
      if (block.strip().startsWith("|")) {
        Arrays.stream(plain(block).split("\\|"))
            .filter(cell -> !cell.matches("[\\s:-]*"))
            .forEach(cell -> split(cell, to));
      } else if (!block.startsWith("    ") || ITEM.matcher(block).find()) {
        split(plain(ITEM.matcher(block).replaceFirst("")), to);
      }
    }
  }

  private static String plain(String line) {
    return line.replaceAll("`[^`]*`", "X")
        .replaceAll("\\[([^\\]]*)\\]\\([^)]*\\)", "$1")
        .replace("**", "");
  }

  private static void split(String text, Consumer<String> to) {
    String flat = text.replaceAll("\\s+", " ").strip();
    if (!flat.isEmpty()) {
      SENTENCE_END.splitAsStream(flat).map(String::strip).forEach(to);
    }
  }
}

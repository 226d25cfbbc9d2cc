// SPDX-License-Identifier: Apache-2.0
package io.fluxccl;

import static org.assertj.core.api.Assertions.assertThat;

import com.sun.source.tree.ClassTree;
import com.sun.source.tree.CompilationUnitTree;
import com.sun.source.tree.MethodTree;
import com.sun.source.tree.Tree;
import com.sun.source.util.TreePathScanner;
import io.fluxccl.testing.SourceFiles;
import java.io.IOException;
import java.net.URI;
import java.nio.file.Path;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.tools.JavaFileObject;
import javax.tools.SimpleJavaFileObject;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * Keeps tests independent of the speed of the machine: only a test with the tag {@code timed}
 * compares a measured time with an upper bound. The build runs these tests alone.
 */
class TimedTestsTest {
  private static final List<Path> SOURCES = List.of(Path.of("src/test/java"), Path.of("samples"));

  /** The fault suite is a profile of its own, and measures how fast deaths are reported. */
  private static final String FAULTS = "/io/fluxccl/faults/";

  /** Methods that compare two recorded times, or only end a hang. */
  private static final Set<String> ALLOWED =
      Set.of(
          "HangLimit#check", // ends a hang after a minute
          "HostSideTest#whyNoSignal", // shows the error of a limit that passes
          "DeviceTimesContract#shouldRecordDeviceTimesOfEachCall"); // the order of recorded times

  /**
   * {@code millis} and {@code awaitFailure} of RankDeathTest return a time that a rank measured.
   */
  private static final Pattern CLOCK =
      Pattern.compile(
          "\\bnanoTime\\(|\\bcurrentTimeMillis\\(|\\bInstant\\.now\\(|CpuTime\\b|"
              + "\\bmillis\\(|\\bawaitFailure\\(");

  private static final Pattern UPPER_BOUND =
      Pattern.compile(
          "\\.(isLessThan|isLessThanOrEqualTo|isBetween|isStrictlyBetween|isCloseTo|isBefore)\\(|"
              + "\\bassertTimeout|\\.until\\(\\(\\)->[^;]*\\(\\) - \\w+ < ");

  /** A limit that a test has to keep, such as {@code succeedsWithin(Duration.ofSeconds(2))}. */
  private static final Pattern LIMIT =
      Pattern.compile(
          "\\b(succeedsWithin|failsWithin|atMost|verify|block|get|await|waitFor|orTimeout|"
              + "assertTimeout\\w*)"
              + "\\((?:java\\.time\\.)?(?:Duration\\.of(Millis|Seconds)\\()?(\\d[\\d_]*)"
              + "(?:L)?(?:, *(?:java\\.util\\.concurrent\\.)?(?:TimeUnit\\.)?(\\w+))?\\)");

  private static final int LEAST_LIMIT_SECONDS = 10;

  private static final Pattern TAG = Pattern.compile("@Tag\\((value ?= ?)?\"timed\"\\)");

  @Test
  void shouldCompareTimeWithABoundInTimedTestsOnly() throws IOException {
    Set<String> found = new TreeSet<>();
    SourceFiles.onEachUnit(tests(), (unit, trees) -> scan(unit, found));
    found.removeAll(ALLOWED);
    assertThat(found)
        .as("assert order and outcome, or add @Tag(\"timed\") with the bound in a comment")
        .isEmpty();
  }

  private static final String MEASURES =
      "long start = System.nanoTime(); run();"
          + " assertThat(Duration.ofNanos(System.nanoTime() - start)).isLessThan(LIMIT); } }";

  @ParameterizedTest
  @ValueSource(
      strings = {
        "class A { @Test void a() { " + MEASURES,
        "class A { void a() { " + MEASURES,
        "class A { @Tag(\"alone\") void a() { " + MEASURES,
        "class A { @Test void a() { Duration took = took(); assertThat(took).isLessThan(5); }"
            + " Duration took() { long start = System.nanoTime(); run();"
            + " return Duration.ofNanos(System.nanoTime() - start); } }",
        "class A { @Test void a() { assertThat(f).succeedsWithin(5, SECONDS); } }",
        "class A { void a() { await().atMost(Duration.ofMillis(900)).until(b); } }",
      })
  void shouldFindAnUpperBound(String source) throws IOException {
    assertThat(foundIn(source)).containsExactly("A#a");
  }

  @ParameterizedTest
  @ValueSource(
      strings = {
        "class A { @Tag(\"timed\") @Test void a() { " + MEASURES,
        "@Tag(\"timed\") class A { @Test void a() { " + MEASURES,
        "class A { @Test void a() { long start = System.nanoTime(); run();"
            + " assertThat(Duration.ofNanos(System.nanoTime() - start)).isGreaterThan(LIMIT); } }",
        "class A { void a() { await().atMost(Duration.ofSeconds(60)).until(b); } }",
        "class A { void a() {"
            + " assertThatThrownBy(() -> f.get(3, SECONDS)).isInstanceOf(Timeout.class); } }",
        "class A { void a() { assertThat(f).failsWithin(0, SECONDS); } }",
      })
  void shouldAllowTimedTestsAndLongLimits(String source) throws IOException {
    assertThat(foundIn(source)).isEmpty();
  }

  private static Set<String> foundIn(String source) throws IOException {
    JavaFileObject file =
        new SimpleJavaFileObject(URI.create("string:///A.java"), JavaFileObject.Kind.SOURCE) {
          @Override
          public CharSequence getCharContent(boolean ignoreEncodingErrors) {
            return source;
          }
        };
    Set<String> found = new TreeSet<>();
    SourceFiles.onEachUnit(List.of(file), (unit, trees) -> scan(unit, found));
    return found;
  }

  private static void scan(CompilationUnitTree unit, Set<String> found) {
    new Bounds(clocksOf(unit), found).scan(unit, null);
  }

  /** Returns the names of a file's methods that read a clock and return a time. */
  private static Set<String> clocksOf(CompilationUnitTree unit) {
    Set<String> clocks = new TreeSet<>();
    new TreePathScanner<Void, Void>() {
      @Override
      public Void visitMethod(MethodTree method, Void unused) {
        String returned = String.valueOf(method.getReturnType());
        if (Set.of("long", "long[]", "double", "Duration").contains(returned)
            && CLOCK.matcher(String.valueOf(method.getBody())).find()) {
          clocks.add(method.getName().toString());
        }
        return super.visitMethod(method, unused);
      }
    }.scan(unit, null);
    return clocks;
  }

  private static List<Path> tests() {
    return SOURCES.stream()
        .flatMap(folder -> SourceFiles.under(folder, "java").stream())
        .filter(path -> path.toString().contains("src/test/java"))
        .filter(path -> !path.toString().contains(FAULTS))
        .toList();
  }

  /** Finds the methods that compare a time with an upper bound without the tag. */
  private static final class Bounds extends TreePathScanner<Void, Void> {
    private final Set<String> clocks;
    private final Set<String> found;

    private Bounds(Set<String> clocks, Set<String> found) {
      this.clocks = clocks;
      this.found = found;
    }

    @Override
    public Void visitMethod(MethodTree method, Void unused) {
      String body = String.valueOf(method.getBody());
      if (!isTimed() && (comparesTime(body) || hasShortLimit(body))) {
        found.add(typeName() + "#" + method.getName());
      }
      return super.visitMethod(method, unused);
    }

    private boolean comparesTime(String body) {
      boolean readsClock =
          CLOCK.matcher(body).find()
              || clocks.stream()
                  .anyMatch(name -> Pattern.compile("\\b" + name + "\\(").matcher(body).find());
      return readsClock && UPPER_BOUND.matcher(body).find();
    }

    private static boolean hasShortLimit(String body) {
      for (Matcher limit = LIMIT.matcher(body); limit.find(); ) {
        long value = Long.parseLong(limit.group(3).replace("_", ""));
        String unit = limit.group(2) != null ? limit.group(2) : limit.group(4);
        boolean isTime = unit != null && unit.matches("(?i)(milli|micro|nano)?s(econds)?|millis");
        double seconds = unit != null && unit.matches("(?i)millis.*") ? value / 1000.0 : value;
        if (isTime && value > 0 && seconds < LEAST_LIMIT_SECONDS && !hasToPass(body, limit)) {
          return true; // zero: the future is done already
        }
      }
      return false;
    }

    /** Returns whether the test asserts that the limit passes, as a slow machine lets it. */
    private static boolean hasToPass(String body, Matcher limit) {
      int begin =
          Math.max(body.lastIndexOf(';', limit.start()), body.lastIndexOf('{', limit.start()));
      int end = body.indexOf(';', limit.end());
      String statement = body.substring(begin + 1, end < 0 ? body.length() : end);
      return statement.contains("assertThatThrownBy(") && statement.contains("Timeout");
    }

    /** Returns whether the method, or a class around it, has the tag. */
    private boolean isTimed() {
      for (Tree tree : getCurrentPath()) {
        String annotations =
            tree instanceof MethodTree method
                ? method.getModifiers().getAnnotations().toString()
                : tree instanceof ClassTree type
                    ? type.getModifiers().getAnnotations().toString()
                    : "";
        if (TAG.matcher(annotations).find()) {
          return true;
        }
      }
      return false;
    }

    private String typeName() {
      Tree parent = getCurrentPath().getParentPath().getLeaf();
      return ((ClassTree) parent).getSimpleName().toString();
    }
  }
}

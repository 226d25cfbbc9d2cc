// SPDX-License-Identifier: Apache-2.0
package io.fluxccl;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import com.sun.source.tree.ClassTree;
import com.sun.source.tree.CompilationUnitTree;
import com.sun.source.tree.MethodTree;
import com.sun.source.tree.ModifiersTree;
import com.sun.source.tree.Tree;
import com.sun.source.tree.Tree.Kind;
import com.sun.source.tree.VariableTree;
import com.sun.source.util.JavacTask;
import com.sun.source.util.SourcePositions;
import com.sun.source.util.TreePathScanner;
import com.sun.source.util.TreeScanner;
import com.sun.source.util.Trees;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import javax.lang.model.element.Modifier;
import javax.tools.JavaCompiler;
import javax.tools.StandardJavaFileManager;
import javax.tools.ToolProvider;
import org.junit.jupiter.api.Test;

/** Keeps the library's files, kernels and native code too, and its methods short enough to read. */
class ShapeTest {
  private static final int FILE_LINES = 400;
  private static final int METHOD_LINES = 60;
  private static final String LICENSE = "SPDX-License-Identifier: Apache-2.0";

  private static final Path SOURCES = Path.of("src/main/java");
  private static final List<Path> ALL_SOURCES =
      List.of(SOURCES, Path.of("src/main/cuda"), Path.of("native"));

  @Test
  void shouldKeepFilesShort() throws IOException {
    Set<String> tooLong = new TreeSet<>();
    for (Path folder : ALL_SOURCES) {
      for (Path file : sources(folder, "java", "cu", "cuh", "c", "h")) {
        try (Stream<String> lines = Files.lines(file)) {
          if (lines.filter(line -> !line.contains(LICENSE)).count() > FILE_LINES) {
            tooLong.add(file.toString());
          }
        }
      }
    }
    assertThat(tooLong).as("files over %d lines", FILE_LINES).isEmpty();
  }

  @Test
  void shouldKeepMethodsShort() throws IOException {
    Set<String> tooLong = new TreeSet<>();
    onEachUnit((unit, trees) -> tooLong.addAll(methodsTooLong(unit, trees.getSourcePositions())));
    assertThat(tooLong).as("methods over %d lines", METHOD_LINES).isEmpty();
  }

  /** Whose first sentence says all has no tags, so doclint's "missing" is off; this is not. */
  @Test
  void shouldDescribeWhatIsPublic() throws IOException {
    Set<String> bare = new TreeSet<>();
    onEachUnit((unit, trees) -> new PublicMembers(trees, bare).scan(unit, null));
    assertThat(bare).as("public, without a comment").isEmpty();
  }

  @Test
  void shouldNameTheLicense() throws IOException {
    Set<String> without = new TreeSet<>();
    for (String folder : List.of("src", "native", "samples", "benchmarks")) {
      for (Path file : sources(Path.of(folder), "java", "kt", "cu", "cuh", "c", "h", "cpp")) {
        try (Stream<String> lines = Files.lines(file)) {
          if (lines.limit(2).noneMatch(line -> line.contains(LICENSE))) {
            without.add(file.toString());
          }
        }
      }
    }
    without.removeIf(file -> file.contains("/target/"));
    assertThat(without).as("run src/test/release/headers").isEmpty();
  }

  private interface UnitCheck {
    void check(CompilationUnitTree unit, Trees trees);
  }

  private static void onEachUnit(UnitCheck check) throws IOException {
    JavaCompiler compiler = ToolProvider.getSystemJavaCompiler();
    assumeTrue(compiler != null, "a runtime without a compiler");
    try (StandardJavaFileManager files = compiler.getStandardFileManager(null, null, null)) {
      JavacTask task =
          (JavacTask)
              compiler.getTask(
                  null,
                  files,
                  null,
                  List.of(),
                  null,
                  files.getJavaFileObjectsFromPaths(sources(SOURCES, "java")));
      Trees trees = Trees.instance(task);
      for (CompilationUnitTree unit : task.parse()) {
        check.check(unit, trees);
      }
    }
  }

  /** Public types, and their public and protected members, that have no comment. */
  private static final class PublicMembers extends TreePathScanner<Void, Void> {
    private final Trees trees;
    private final Set<String> bare;

    private PublicMembers(Trees trees, Set<String> bare) {
      this.trees = trees;
      this.bare = bare;
    }

    @Override
    public Void visitClass(ClassTree type, Void unused) {
      boolean inInterface = getCurrentPath().getParentPath().getLeaf().getKind() == Kind.INTERFACE;
      if (!inInterface && !isVisible(type.getModifiers())) {
        return null;
      }
      check(type.getSimpleName().toString());
      return super.visitClass(type, unused);
    }

    @Override
    public Void visitMethod(MethodTree method, Void unused) {
      boolean inInterface = getCurrentPath().getParentPath().getLeaf().getKind() == Kind.INTERFACE;
      boolean overrides =
          method.getModifiers().getAnnotations().stream()
              .anyMatch(a -> a.getAnnotationType().toString().equals("Override"));
      boolean isPrivate = method.getModifiers().getFlags().contains(Modifier.PRIVATE);
      if (!overrides && !isPrivate && (inInterface || isVisible(method.getModifiers()))) {
        check(method.getName().toString());
      }
      return null;
    }

    @Override
    public Void visitVariable(VariableTree field, Void unused) {
      Tree parent = getCurrentPath().getParentPath().getLeaf();
      boolean ofRecord = parent.getKind() == Kind.RECORD; // its components have @param
      if (!ofRecord && isVisible(field.getModifiers())) {
        check(field.getName().toString());
      }
      return null;
    }

    private static boolean isVisible(ModifiersTree modifiers) {
      return modifiers.getFlags().contains(Modifier.PUBLIC)
          || modifiers.getFlags().contains(Modifier.PROTECTED);
    }

    private void check(String name) {
      if (trees.getDocComment(getCurrentPath()) == null) {
        bare.add(getCurrentPath().getCompilationUnit().getSourceFile().getName() + "#" + name);
      }
    }
  }

  private static List<String> methodsTooLong(CompilationUnitTree unit, SourcePositions positions) {
    Path file = SOURCES.toAbsolutePath().relativize(Path.of(unit.getSourceFile().toUri()));
    List<String> found = new ArrayList<>();
    new TreeScanner<Void, Void>() {
      @Override
      public Void visitMethod(MethodTree method, Void unused) {
        long end = positions.getEndPosition(unit, method);
        if (end >= 0) { // a record's constructor that is not written down has none
          long lines = line(end) - line(positions.getStartPosition(unit, method)) + 1;
          if (lines > METHOD_LINES) {
            found.add(file + "#" + method.getName());
          }
        }
        return super.visitMethod(method, unused);
      }

      private long line(long position) {
        return unit.getLineMap().getLineNumber(position);
      }
    }.scan(unit, null);
    return found;
  }

  private static List<Path> sources(Path folder, String... endings) throws IOException {
    try (Stream<Path> tree = Files.walk(folder)) {
      return tree.filter(
              path -> Stream.of(endings).anyMatch(ending -> path.toString().endsWith("." + ending)))
          .collect(Collectors.toList());
    }
  }
}

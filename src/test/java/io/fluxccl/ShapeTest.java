package io.fluxccl;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import com.sun.source.tree.CompilationUnitTree;
import com.sun.source.tree.MethodTree;
import com.sun.source.util.JavacTask;
import com.sun.source.util.SourcePositions;
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
import javax.tools.JavaCompiler;
import javax.tools.StandardJavaFileManager;
import javax.tools.ToolProvider;
import org.junit.jupiter.api.Test;

/** Keeps the library's files, kernels and native code too, and its methods short enough to read. */
class ShapeTest {
  private static final int FILE_LINES = 400;
  private static final int METHOD_LINES = 60;

  private static final Path SOURCES = Path.of("src/main/java");
  private static final List<Path> ALL_SOURCES =
      List.of(SOURCES, Path.of("src/main/cuda"), Path.of("native"));

  @Test
  void shouldKeepFilesShort() throws IOException {
    Set<String> tooLong = new TreeSet<>();
    for (Path folder : ALL_SOURCES) {
      for (Path file : sources(folder, "java", "cu", "cuh", "c", "h")) {
        try (Stream<String> lines = Files.lines(file)) {
          if (lines.count() > FILE_LINES) {
            tooLong.add(file.toString());
          }
        }
      }
    }
    assertThat(tooLong).as("files over %d lines", FILE_LINES).isEmpty();
  }

  @Test
  void shouldKeepMethodsShort() throws IOException {
    JavaCompiler compiler = ToolProvider.getSystemJavaCompiler();
    assumeTrue(compiler != null, "a runtime without a compiler");
    Set<String> tooLong = new TreeSet<>();
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
      SourcePositions positions = Trees.instance(task).getSourcePositions();
      for (CompilationUnitTree unit : task.parse()) {
        tooLong.addAll(methodsTooLong(unit, positions));
      }
    }
    assertThat(tooLong).as("methods over %d lines", METHOD_LINES).isEmpty();
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

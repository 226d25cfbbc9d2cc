// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.testing;

import static org.junit.jupiter.api.Assumptions.assumeTrue;

import com.sun.source.tree.CompilationUnitTree;
import com.sun.source.util.JavacTask;
import com.sun.source.util.Trees;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.stream.Stream;
import javax.tools.JavaCompiler;
import javax.tools.JavaFileObject;
import javax.tools.StandardJavaFileManager;
import javax.tools.ToolProvider;

/** The files of the tree, and their syntax, for tests that check rules of the sources. */
public final class SourceFiles {
  private SourceFiles() {}

  /** A rule that reads the syntax tree of one source file. */
  public interface UnitCheck {
    /** Checks one file. */
    void check(CompilationUnitTree unit, Trees trees) throws IOException;
  }

  /** Returns the regular files below a folder with one of these endings; all without endings. */
  public static List<Path> under(Path folder, String... endings) {
    try (Stream<Path> tree = Files.walk(folder)) {
      return tree.filter(Files::isRegularFile)
          .filter(
              file ->
                  endings.length == 0
                      || Stream.of(endings).anyMatch(end -> file.toString().endsWith("." + end)))
          .sorted()
          .toList();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /** Returns the text of a file. */
  public static String text(Path file) {
    try {
      return Files.readString(file);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /** Parses Java files, and passes each of them to a check. */
  public static void onEachUnit(List<Path> files, UnitCheck check) throws IOException {
    try (StandardJavaFileManager manager = compiler().getStandardFileManager(null, null, null)) {
      onEachUnit(manager.getJavaFileObjectsFromPaths(files), check);
    }
  }

  /** Parses Java sources that need not be files. */
  public static void onEachUnit(Iterable<? extends JavaFileObject> sources, UnitCheck check)
      throws IOException {
    JavacTask task =
        (JavacTask) compiler().getTask(null, null, any -> {}, List.of(), null, sources);
    Trees trees = Trees.instance(task);
    for (CompilationUnitTree unit : task.parse()) {
      check.check(unit, trees);
    }
  }

  private static JavaCompiler compiler() {
    JavaCompiler compiler = ToolProvider.getSystemJavaCompiler();
    assumeTrue(compiler != null, "a runtime without a compiler");
    return compiler;
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl;

import static org.assertj.core.api.Assertions.assertThat;

import com.sun.source.tree.ClassTree;
import com.sun.source.tree.CompilationUnitTree;
import com.sun.source.tree.LineMap;
import com.sun.source.tree.MethodTree;
import com.sun.source.tree.ModifiersTree;
import com.sun.source.tree.Tree;
import com.sun.source.tree.Tree.Kind;
import com.sun.source.tree.VariableTree;
import com.sun.source.util.SourcePositions;
import com.sun.source.util.TreePath;
import com.sun.source.util.TreePathScanner;
import com.sun.source.util.Trees;
import com.tngtech.archunit.core.domain.JavaClass;
import com.tngtech.archunit.core.domain.JavaClasses;
import com.tngtech.archunit.core.domain.JavaModifier;
import com.tngtech.archunit.core.importer.ClassFileImporter;
import com.tngtech.archunit.core.importer.ImportOption;
import io.fluxccl.testing.SourceFiles;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import javax.lang.model.element.Modifier;
import org.junit.jupiter.api.Test;

/**
 * Keeps the library small: packages within their budgets, files and methods short enough to read.
 * {@code budgets.txt} has the lines of code and the top-level types of each package; {@code
 * shape.txt} has the exceptions, each with its reason. Both only shrink: a budget or an exception
 * that is no longer needed fails as well.
 */
class ShapeTest {
  private static final int FILE_LINES = 800;
  private static final int LONG_FILE_LINES = 500;
  private static final int LONG_FILE_METHODS = 25;
  private static final int METHOD_LINES = 60;
  private static final int SMALL_TYPE_LINES = 80;
  private static final int CONSTRUCTOR_ARGUMENTS = 6;

  /** The number of types with a closed flag of their own, which must not grow. */
  private static final int CLOSED_FLAGS = 8;

  /** The number of lines by which a budget may exceed the lines of its package. */
  private static final int SLACK = 60;

  private static final Path LISTS = Path.of("src/test/resources/io/fluxccl");
  private static final String LICENSE = "SPDX-License-Identifier: Apache-2.0";

  private static final Path SOURCES = Path.of("src/main/java");
  private static final List<Path> ALL_SOURCES =
      List.of(SOURCES, Path.of("src/main/cuda"), Path.of("native"));

  @Test
  void shouldKeepFilesShort() {
    Set<String> tooLong = new TreeSet<>();
    for (Path folder : ALL_SOURCES) {
      for (Path file : SourceFiles.under(folder, "java", "cu", "cuh", "c", "h")) {
        if (lines(file).filter(line -> !line.contains(LICENSE)).count() > FILE_LINES) {
          tooLong.add(file.toString());
        }
      }
    }
    assertThat(tooLong).as("files over %d lines", FILE_LINES).isEmpty();
  }

  private static Stream<String> lines(Path file) {
    return SourceFiles.text(file).lines();
  }

  @Test
  void shouldKeepLongFilesToFewMethods() throws IOException {
    Set<String> found = new TreeSet<>();
    onEachUnit(
        (unit, trees) -> {
          long lines =
              unit.getLineMap()
                  .getLineNumber(unit.getSourceFile().getCharContent(true).length() - 1);
          for (Tree type : lines > LONG_FILE_LINES ? unit.getTypeDecls() : List.<Tree>of()) {
            long methods =
                ((ClassTree) type).getMembers().stream().filter(ShapeTest::isOpenMethod).count();
            if (methods > LONG_FILE_METHODS) {
              found.add(unit.getSourceFile().getName() + ": " + methods);
            }
          }
        });
    assertThat(found)
        .as("over %d lines and %d methods", LONG_FILE_LINES, LONG_FILE_METHODS)
        .isEmpty();
  }

  private static boolean isOpenMethod(Tree member) {
    return member instanceof MethodTree method
        && !method.getModifiers().getFlags().contains(Modifier.PRIVATE);
  }

  /** The lines of code of a package, and its top-level types. */
  private record Size(int lines, int types) {
    static Size parse(String[] words) {
      return new Size(Integer.parseInt(words[1]), Integer.parseInt(words[2]));
    }

    Size plus(int moreLines) {
      return new Size(lines + moreLines, types + 1);
    }
  }

  /** Returns the lines of a file but blank ones, comments, imports and the package's. */
  private static int linesOfCode(Path file) {
    int count = 0;
    boolean isComment = false;
    for (String line : lines(file).toList()) {
      String code = line.strip();
      if (isComment || code.startsWith("/*")) {
        isComment = !code.contains("*/");
      } else if (!code.isEmpty()
          && !code.startsWith("//")
          && !code.matches("(import|package) .*")) {
        count++;
      }
    }
    return count;
  }

  private static Map<String, Size> sizes() {
    Map<String, Size> sizes = new TreeMap<>();
    for (Path file : SourceFiles.under(SOURCES, "java")) {
      String name = SOURCES.relativize(file.getParent()).toString().replace('/', '.');
      boolean isType = !file.endsWith("package-info.java");
      Size before = sizes.getOrDefault(name, new Size(0, 0));
      sizes.put(name, isType ? before.plus(linesOfCode(file)) : before);
    }
    return sizes;
  }

  private static List<String[]> list(String name) {
    return lines(LISTS.resolve(name))
        .filter(line -> !line.isBlank() && !line.startsWith("#"))
        .map(line -> line.split(" ", 3))
        .toList();
  }

  @Test
  void shouldKeepPackagesWithinTheirBudgets() {
    Map<String, Size> budgets = new TreeMap<>();
    list("budgets.txt").forEach(words -> budgets.put(words[0], Size.parse(words)));
    Map<String, Size> sizes = sizes();
    assertThat(budgets.keySet()).as("packages in budgets.txt").isEqualTo(sizes.keySet());
    sizes.forEach(
        (name, size) -> {
          Size budget = budgets.get(name);
          assertThat(size.lines)
              .as("lines of %s; set the budget lower if the package has become smaller", name)
              .isBetween(budget.lines - SLACK, budget.lines);
          assertThat(size.types).as("types of %s", name).isEqualTo(budget.types);
        });
  }

  @Test
  void shouldMergeSmallTypesWithTheirOnlyUser() {
    JavaClasses library =
        new ClassFileImporter()
            .withImportOption(ImportOption.Predefined.DO_NOT_INCLUDE_TESTS)
            .importPath("target/classes/io/fluxccl");
    Set<String> found = new TreeSet<>();
    for (JavaClass type : library) {
      Path file = SOURCES.resolve(type.getName().replace('.', '/') + ".java");
      if (type.isTopLevelClass()
          && type.getModifiers().stream().noneMatch(m -> m == JavaModifier.PUBLIC)
          && !type.isAssignableTo(Throwable.class)
          && Files.exists(file)
          && linesOfCode(file) < SMALL_TYPE_LINES
          && usersOf(type).size() == 1) {
        found.add(type.getName());
      }
    }
    assertThat(found).as("small types with one user").isEqualTo(exceptions("one-user"));
  }

  private static Set<String> usersOf(JavaClass type) {
    return Stream.concat(Stream.of(type), nestedIn(type))
        .flatMap(one -> one.getDirectDependenciesToSelf().stream())
        .map(dependency -> dependency.getOriginClass().getName().replaceAll("\\$.*", ""))
        .filter(user -> !user.equals(type.getName()) && !user.startsWith("io.fluxccl.samples."))
        .collect(Collectors.toSet());
  }

  private static Stream<JavaClass> nestedIn(JavaClass type) {
    return type.getPackage().getClasses().stream()
        .filter(one -> one.getName().startsWith(type.getName() + "$"));
  }

  private static Set<String> exceptions(String rule) {
    return list("shape.txt").stream()
        .filter(words -> words[0].equals(rule))
        .map(words -> words[1])
        .collect(Collectors.toCollection(TreeSet::new));
  }

  @Test
  void shouldKeepConstructorsAndMethodsShort() throws IOException {
    Set<String> tooManyArguments = new TreeSet<>();
    Set<String> tooLong = new TreeSet<>();
    onEachUnit(
        (unit, trees) ->
            new TreePathScanner<Void, Void>() {
              @Override
              public Void visitMethod(MethodTree method, Void unused) {
                ClassTree type = (ClassTree) getCurrentPath().getParentPath().getLeaf();
                String name = unit.getPackageName() + "." + type.getSimpleName();
                if (method.getReturnType() == null
                    && type.getKind() != Kind.RECORD
                    && method.getParameters().size() > CONSTRUCTOR_ARGUMENTS) {
                  tooManyArguments.add(name);
                }
                if (lines(unit, trees.getSourcePositions(), method) > METHOD_LINES) {
                  tooLong.add(name + "#" + method.getName());
                }
                return super.visitMethod(method, unused);
              }
            }.scan(unit, null));
    assertThat(tooManyArguments)
        .as("constructors with over %d arguments", CONSTRUCTOR_ARGUMENTS)
        .isEqualTo(exceptions("arguments"));
    assertThat(tooLong).as("methods over %d lines", METHOD_LINES).isEmpty();
  }

  /**
   * An object that closes holds a {@code Lifecycle} or a {@code UseCount}, which close it once and
   * refuse its use. A flag or a state of its own needs a reason.
   */
  @Test
  void shouldKeepFewFlagsOfClosedObjects() throws IOException {
    Set<String> flags = new TreeSet<>();
    onEachUnit((unit, trees) -> new ClosedFlags(flags).scan(unit, null));
    flags.remove("io.fluxccl.concurrent.Lifecycle.State");
    assertThat(flags)
        .as("types with a closed flag of their own")
        .isEqualTo(exceptions("closed-flag"));
    assertThat(flags).hasSize(CLOSED_FLAGS);
  }

  /** Fields named closed or closing of a boolean type, and constants named CLOSED. */
  private static final class ClosedFlags extends TreePathScanner<Void, Void> {
    private static final Set<String> NAMES = Set.of("closed", "closing");
    private static final Set<String> TYPES = Set.of("boolean", "AtomicBoolean");
    private final Set<String> found;

    private ClosedFlags(Set<String> found) {
      this.found = found;
    }

    @Override
    public Void visitVariable(VariableTree variable, Void unused) {
      Tree parent = getCurrentPath().getParentPath().getLeaf();
      boolean isFlag =
          NAMES.contains(variable.getName().toString())
              && TYPES.contains(String.valueOf(variable.getType()));
      boolean isState = parent.getKind() == Kind.ENUM && variable.getName().contentEquals("CLOSED");
      if (parent instanceof ClassTree && (isFlag || isState)) {
        found.add(nameOf(getCurrentPath().getParentPath()));
      }
      return super.visitVariable(variable, unused);
    }

    private static String nameOf(TreePath type) {
      String name = ((ClassTree) type.getLeaf()).getSimpleName().toString();
      TreePath outer = type.getParentPath();
      return outer.getLeaf() instanceof ClassTree
          ? nameOf(outer) + "." + name
          : outer.getCompilationUnit().getPackageName() + "." + name;
    }
  }

  /** Returns the lines of a method; 0 for a record's constructor that is not written down. */
  private static long lines(CompilationUnitTree unit, SourcePositions positions, Tree method) {
    long end = positions.getEndPosition(unit, method);
    LineMap map = unit.getLineMap();
    return end < 0
        ? 0
        : map.getLineNumber(end) - map.getLineNumber(positions.getStartPosition(unit, method)) + 1;
  }

  /**
   * Doclint's "missing" is off, because it demands tags also if the first sentence is sufficient.
   * This test only demands a comment.
   */
  @Test
  void shouldCommentAllPublicMembers() throws IOException {
    Set<String> bare = new TreeSet<>();
    onEachUnit((unit, trees) -> new PublicMembers(trees, bare).scan(unit, null));
    assertThat(bare).as("public, without a comment").isEmpty();
  }

  @Test
  void shouldNameTheLicense() {
    Set<String> without = new TreeSet<>();
    for (String folder : List.of("src", "native", "samples", "benchmarks")) {
      String[] endings = {"java", "kt", "cu", "cuh", "c", "h", "cpp"};
      SourceFiles.under(Path.of(folder), endings).stream()
          .filter(file -> !file.toString().contains("/target/"))
          .filter(file -> lines(file).limit(2).noneMatch(line -> line.contains(LICENSE)))
          .forEach(file -> without.add(file.toString()));
    }
    assertThat(without).as("run src/test/release/headers").isEmpty();
  }

  private static void onEachUnit(SourceFiles.UnitCheck check) throws IOException {
    SourceFiles.onEachUnit(SourceFiles.under(SOURCES, "java"), check);
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
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl;

import static org.assertj.core.api.Assertions.assertThat;

import com.tngtech.archunit.core.domain.JavaClass;
import com.tngtech.archunit.core.importer.ClassFileImporter;
import java.io.IOException;
import java.lang.reflect.AnnotatedElement;
import java.lang.reflect.Executable;
import java.lang.reflect.Field;
import java.lang.reflect.Member;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

/**
 * Compares the stable API, which is all that is public and not marked {@link Experimental}, with
 * src/test/api/stable.txt. To change the API on purpose, rewrite the file with
 * -Dfluxccl.api.write=true and give the reason in CHANGELOG.md.
 */
class ApiTest {
  private static final Path CLASSES = Path.of("target/classes");
  private static final Path RECORDED = Path.of("src/test/api/stable.txt");
  private static final Set<String> OF_EVERY_OBJECT = Set.of("equals", "hashCode", "toString");
  private static final Pattern OUR_TYPES =
      Pattern.compile("io\\.fluxccl(?:\\.[a-z]\\w*)*\\.[A-Z][\\w$]*");

  @Test
  void shouldChangeTheStableApiOnPurposeOnly() throws IOException {
    Set<String> now = stableApi();
    if (Boolean.getBoolean("fluxccl.api.write")) {
      Files.write(RECORDED, now);
    }
    List<String> recorded = Files.readAllLines(RECORDED);
    Set<String> gone = new TreeSet<>(recorded);
    gone.removeAll(now);
    Set<String> added = new TreeSet<>(now);
    added.removeAll(recorded);
    String remedy =
        "; if it is meant: ./mvnw test -Dtest=ApiTest -Dfluxccl.api.write=true, and CHANGELOG.md";
    assertThat(gone).as("gone from the stable API, which breaks its users" + remedy).isEmpty();
    assertThat(added).as("new in the stable API, or to be marked @Experimental" + remedy).isEmpty();
    assertThat(recorded).isSorted().hasSizeGreaterThan(100);
  }

  @Test
  void shouldLeaveOutExperimentalAndInternalTypes() {
    assertThat(stableApi())
        .anyMatch(line -> line.startsWith("io.fluxccl.group.RankGroup "))
        .noneMatch(line -> line.startsWith(NativeLibrary.class.getName() + " "))
        .noneMatch(line -> line.startsWith("io.fluxccl.wire."));
  }

  private static Set<String> stableApi() {
    List<Class<?>> stable = types().stream().filter(ApiTest::isStable).toList();
    Set<String> names = stable.stream().map(Class::getName).collect(Collectors.toSet());
    Set<String> lines = new TreeSet<>();
    for (Class<?> type : stable) {
      lines.add(type.getName() + " " + header(type));
      members(type).stream()
          .filter(member -> namesOnly(names, member))
          .forEach(member -> lines.add(type.getName() + " " + member));
    }
    return lines;
  }

  /** Whether the types of ours in a signature are among those; its own name is, too. */
  private static boolean namesOnly(Set<String> stable, String member) {
    return OUR_TYPES.matcher(member).results().allMatch(match -> stable.contains(match.group()));
  }

  private static List<Class<?>> types() {
    return new ClassFileImporter()
        .importPath(CLASSES.resolve("io/fluxccl")).stream()
            .filter(type -> !type.getSimpleName().equals("package-info"))
            .<Class<?>>map(JavaClass::reflect)
            .toList();
  }

  private static boolean isStable(Class<?> type) {
    for (Class<?> each = type; each != null; each = each.getEnclosingClass()) {
      if (!isVisible(each.getModifiers()) || isMarked(each)) {
        return false;
      }
    }
    return !type.isAnonymousClass() && !isMarked(type.getPackage());
  }

  private static boolean isMarked(AnnotatedElement element) {
    return element.isAnnotationPresent(Experimental.class);
  }

  private static boolean isVisible(int modifiers) {
    return Modifier.isPublic(modifiers) || Modifier.isProtected(modifiers);
  }

  private static String header(Class<?> type) {
    List<String> parents = new ArrayList<>();
    if (type.getGenericSuperclass() != null && type.getSuperclass() != Object.class) {
      parents.add(type.getGenericSuperclass().getTypeName());
    }
    Arrays.stream(type.getGenericInterfaces()).forEach(each -> parents.add(each.getTypeName()));
    String kind = Modifier.toString(type.getModifiers() & ~Modifier.STRICT);
    return kind
        + (type.isInterface() ? "" : " class")
        + (type.isSealed() ? " sealed " : " ")
        + parents;
  }

  /** Declared here, or in a parent that users do not see. */
  private static List<String> members(Class<?> type) {
    List<String> found = new ArrayList<>();
    boolean open = !Modifier.isFinal(type.getModifiers());
    List<Class<?>> owners = new ArrayList<>(List.of(type));
    Class<?> parent = type.getSuperclass();
    while (parent != null && !Modifier.isPublic(parent.getModifiers())) {
      owners.add(parent);
      parent = parent.getSuperclass();
    }
    for (Class<?> each : owners) {
      Stream<Member> constructors =
          each == type ? Arrays.stream(each.getDeclaredConstructors()) : Stream.empty();
      Stream.of(
              Arrays.stream(each.getDeclaredFields()),
              Arrays.stream(each.getDeclaredMethods()),
              constructors)
          .flatMap(members -> members)
          .filter(member -> isApi(member, open))
          .forEach(member -> found.add(text(member).replace(each.getName() + ".", "")));
    }
    return found;
  }

  private static boolean isApi(Member member, boolean open) {
    int modifiers = member.getModifiers();
    return (Modifier.isPublic(modifiers) || open && Modifier.isProtected(modifiers))
        && !member.isSynthetic()
        && !OF_EVERY_OBJECT.contains(member.getName())
        && !isMarked((AnnotatedElement) member);
  }

  private static String text(Member member) {
    if (member instanceof Field field) {
      return field.toGenericString();
    }
    String text = ((Executable) member).toGenericString();
    // Whether a method holds a lock is no part of its contract, nor whether it is native.
    text = text.replaceFirst("\\b(synchronized|native) ", "");
    return member instanceof Method method && method.isDefault() && !text.contains("default ")
        ? "default " + text
        : text;
  }
}

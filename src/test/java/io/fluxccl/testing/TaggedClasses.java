// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.testing;

import java.io.IOException;
import java.io.InputStream;
import java.net.URISyntaxException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import java.util.regex.Pattern;
import org.junit.platform.engine.TestSource;
import org.junit.platform.engine.discovery.DiscoverySelectors;
import org.junit.platform.engine.support.descriptor.ClassSource;
import org.junit.platform.engine.support.descriptor.MethodSource;
import org.junit.platform.launcher.LauncherDiscoveryRequest;
import org.junit.platform.launcher.TagFilter;
import org.junit.platform.launcher.TestIdentifier;
import org.junit.platform.launcher.TestPlan;
import org.junit.platform.launcher.core.LauncherDiscoveryRequestBuilder;
import org.junit.platform.launcher.core.LauncherFactory;

/**
 * The test classes that have a tag. A bundle holds their names, because it lacks the libraries of
 * other tests, and classes can't be inspected without these.
 */
final class TaggedClasses {
  private static final String FIXTURE = "fixture";

  private TaggedClasses() {}

  /**
   * Returns the sorted classes with one of the words in their names; all if there is no word. A
   * word may also be the full name of another class of the class path, such as a sample's test.
   */
  static List<String> chosen(String tag, List<String> words) throws IOException {
    List<Pattern> patterns =
        words.stream()
            .map(word -> Pattern.quote(word).replace("*", "\\E.*\\Q"))
            .map(Pattern::compile)
            .toList();
    Set<String> found = new TreeSet<>(all(tag));
    found.removeIf(
        name -> !patterns.isEmpty() && patterns.stream().noneMatch(p -> p.matcher(name).find()));
    words.stream().filter(TaggedClasses::exists).forEach(found::add);
    return List.copyOf(found);
  }

  private static boolean exists(String name) {
    try {
      Class.forName(name, false, TaggedClasses.class.getClassLoader());
      return true;
    } catch (ClassNotFoundException | LinkageError e) {
      return false;
    }
  }

  private static Set<String> all(String tag) throws IOException {
    try (InputStream names = TaggedClasses.class.getResourceAsStream(tag + "-classes.txt")) {
      if (names != null) {
        return new TreeSet<>(
            new String(names.readAllBytes(), StandardCharsets.UTF_8).lines().toList());
      }
    }
    LauncherDiscoveryRequest request =
        LauncherDiscoveryRequestBuilder.request()
            .selectors(DiscoverySelectors.selectClasspathRoots(Set.of(root())))
            // Fixtures, which tests of this runner run, are not tests.
            .filters(TagFilter.includeTags(tag.equals(FIXTURE) ? tag : tag + " & !" + FIXTURE))
            .build();
    TestPlan plan = LauncherFactory.create().discover(request);
    Set<String> names = new TreeSet<>();
    for (TestIdentifier engine : plan.getRoots()) {
      plan.getDescendants(engine).stream()
          .filter(test -> test.getTags().stream().anyMatch(t -> t.getName().equals(tag)))
          .filter(test -> plan.getChildren(test).isEmpty())
          .map(TestIdentifier::getSource)
          .flatMap(Optional::stream)
          .map(TaggedClasses::className)
          .flatMap(Optional::stream)
          .forEach(names::add);
    }
    return names;
  }

  /** Returns the class of a test or, as its tests are not known yet, of a parameterized class. */
  private static Optional<String> className(TestSource source) {
    if (source instanceof MethodSource method) {
      return Optional.of(method.getClassName());
    }
    return source instanceof ClassSource type ? Optional.of(type.getClassName()) : Optional.empty();
  }

  private static Path root() {
    try {
      return Path.of(
          TaggedClasses.class.getProtectionDomain().getCodeSource().getLocation().toURI());
    } catch (URISyntaxException e) {
      throw new IllegalStateException(e);
    }
  }
}

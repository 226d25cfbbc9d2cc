// SPDX-License-Identifier: Apache-2.0
package io.fluxccl;

import static com.tngtech.archunit.lang.syntax.ArchRuleDefinition.noClasses;
import static com.tngtech.archunit.library.dependencies.SlicesRuleDefinition.slices;
import static org.assertj.core.api.Assertions.assertThat;

import com.tngtech.archunit.ArchConfiguration;
import com.tngtech.archunit.core.domain.JavaClasses;
import com.tngtech.archunit.core.domain.JavaPackage;
import com.tngtech.archunit.core.importer.ClassFileImporter;
import com.tngtech.archunit.core.importer.ImportOption;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** Holds the table of layers in docs/architecture.md. */
class LayeringTest {
  /** From the bottom up; transports stand side by side. */
  private static final List<List<String>> LAYERS =
      Stream.of(
              "",
              ".settings",
              ".concurrent .wire .tls",
              ".trace",
              ".device",
              ".completion",
              ".device.host .device.cuda",
              ".bootstrap",
              ".transport.tcp",
              ".netplugin",
              ".netplugin.reactive .netplugin.tcp",
              ".netplugin.vendor",
              ".transport",
              ".transport.mapped",
              ".transport.shm .transport.cudaipc .transport.net .transport.ib",
              ".transport.ib.disni .transport.plugin",
              ".netplugin.export",
              ".communicator",
              ".semaphore",
              ".proxy",
              ".channel",
              ".collective",
              ".collective.pipe",
              ".collective.host .collective.cuda .collective.channel",
              ".collective.collnet",
              ".matmul",
              ".group",
              ".training",
              ".testkit",
              ".cli")
          .map(layer -> Stream.of(layer.split(" ")).map("io.fluxccl"::concat).toList())
          .toList();

  // Once for all tests, and without reading the libraries that it uses: their names are enough.
  private static JavaClasses library;

  @BeforeAll
  static void read() {
    ArchConfiguration.get().setResolveMissingDependenciesFromClassPath(false);
    library =
        new ClassFileImporter()
            .withImportOption(ImportOption.Predefined.DO_NOT_INCLUDE_TESTS)
            .importPackages("io.fluxccl");
  }

  @Test
  void shouldImportOnlyFromLowerLayers() {
    for (int i = 0; i < LAYERS.size(); i++) {
      for (String layer : LAYERS.get(i)) {
        List<String> forbidden = new ArrayList<>();
        LAYERS.subList(i, LAYERS.size()).forEach(forbidden::addAll);
        forbidden.remove(layer);
        if (!forbidden.isEmpty()) {
          noClasses()
              .that()
              .resideInAPackage(layer)
              .should()
              .dependOnClassesThat()
              .resideInAnyPackage(forbidden.toArray(new String[0]))
              .because(layer + " stands below them")
              .allowEmptyShould(true)
              .check(library);
        }
      }
    }
  }

  @Test
  void shouldKnowTheLayerOfEveryPackage() {
    List<String> known = LAYERS.stream().flatMap(List::stream).collect(Collectors.toList());
    assertThat(library.stream().map(c -> c.getPackage().getName()).distinct()).isSubsetOf(known);
  }

  @Test
  void shouldHaveNoCyclesBetweenPackages() {
    slices().matching("(io.fluxccl..)").should().beFreeOfCycles().check(library);
  }

  @Test
  void shouldImportAJarsPackagesOnlyInJarsThatDeclareIt() throws IOException {
    List<String> jars = List.of("rdma", "nccl", "matmul", "training", "cli", "testkit");
    for (String jar : jars) {
      Set<String> allowed = new TreeSet<>(packages(jar));
      for (String other : jars) {
        String pom = Files.readString(Path.of("jars", other, "pom.xml"));
        if (pom.contains("<artifactId>fluxccl-" + jar + "</artifactId>")) {
          allowed.addAll(packages(other));
        }
      }
      noClasses()
          .that()
          .resideOutsideOfPackages(allowed.toArray(new String[0]))
          .should()
          .dependOnClassesThat()
          .resideInAnyPackage(packages(jar).toArray(new String[0]))
          .because("they are in the jar fluxccl-" + jar)
          .check(library);
    }
  }

  private static List<String> packages(String jar) throws IOException {
    return Files.readAllLines(Path.of("jars", jar, "contents")).stream()
        .filter(line -> line.endsWith("/*"))
        .map(line -> line.replace("/*", "..").replace('/', '.'))
        .toList();
  }

  @Test
  void shouldNeedJunitInItsAnnotationOnly() {
    noClasses()
        .that()
        .haveNameNotMatching("io.fluxccl.testkit.Ranks(Extension.*)?")
        .should()
        .dependOnClassesThat()
        .resideInAPackage("org.junit..")
        .check(library);
  }

  @Test
  void shouldDescribeEveryPackage() {
    assertThat(
            library.stream()
                .map(c -> c.getPackage())
                .distinct()
                .filter(p -> p.tryGetPackageInfo().isEmpty())
                .map(JavaPackage::getName))
        .isEmpty();
  }

  @Test
  void shouldNeverEndTheProcessFromTheLibrary() {
    noClasses()
        .that()
        .resideOutsideOfPackages("io.fluxccl.cli")
        .should()
        .callMethod(System.class, "exit", int.class)
        .check(library);
  }
}

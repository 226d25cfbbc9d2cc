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
import java.util.stream.Collectors;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** Holds the table of layers in docs/architecture.md. */
class LayeringTest {
  /** From the bottom up; transports stand side by side. */
  private static final List<List<String>> LAYERS =
      List.of(
          List.of("io.fluxccl"),
          List.of("io.fluxccl.settings"),
          List.of("io.fluxccl.concurrent", "io.fluxccl.wire", "io.fluxccl.tls"),
          List.of("io.fluxccl.trace"),
          List.of("io.fluxccl.device"),
          List.of("io.fluxccl.completion"),
          List.of("io.fluxccl.device.host", "io.fluxccl.device.cuda"),
          List.of("io.fluxccl.matmul"),
          List.of("io.fluxccl.bootstrap"),
          List.of("io.fluxccl.netplugin"),
          List.of("io.fluxccl.netplugin.reactive", "io.fluxccl.netplugin.tcp"),
          List.of("io.fluxccl.netplugin.vendor"),
          List.of("io.fluxccl.transport"),
          List.of("io.fluxccl.transport.mapped"),
          List.of(
              "io.fluxccl.transport.shm",
              "io.fluxccl.transport.cudaipc",
              "io.fluxccl.transport.net",
              "io.fluxccl.transport.ib"),
          List.of("io.fluxccl.transport.ib.disni", "io.fluxccl.transport.plugin"),
          List.of("io.fluxccl.netplugin.export"),
          List.of("io.fluxccl.communicator"),
          List.of("io.fluxccl.semaphore"),
          List.of("io.fluxccl.proxy"),
          List.of("io.fluxccl.channel"),
          List.of("io.fluxccl.collective"),
          List.of("io.fluxccl.collective.pipe"),
          List.of(
              "io.fluxccl.collective.host",
              "io.fluxccl.collective.cuda",
              "io.fluxccl.collective.channel"),
          List.of("io.fluxccl.collective.collnet"),
          List.of("io.fluxccl.group"),
          List.of("io.fluxccl.testkit"),
          List.of("io.fluxccl.cli"));

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
  void shouldImportAJarsPackagesInThatJarOnly() throws IOException {
    for (String jar : List.of("rdma", "nccl", "matmul", "cli", "testkit")) {
      String[] packages =
          Files.readAllLines(Path.of("jars", jar, "contents")).stream()
              .filter(line -> line.endsWith("/*"))
              .map(line -> line.replace("/*", "..").replace('/', '.'))
              .toArray(String[]::new);
      noClasses()
          .that()
          .resideOutsideOfPackages(packages)
          .should()
          .dependOnClassesThat()
          .resideInAnyPackage(packages)
          .because("they are in the jar fluxccl-" + jar)
          .check(library);
    }
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

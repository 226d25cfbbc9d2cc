// SPDX-License-Identifier: Apache-2.0
package io.fluxccl;

import static org.assertj.core.api.Assertions.assertThat;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

@Tag("jdk")
class OptionalLibraryTest {
  private static final Pattern COORDINATES = Pattern.compile("([\\w.]+):([\\w-]+):([\\w.]+)");

  @ParameterizedTest
  @EnumSource(OptionalLibrary.class)
  void shouldNameTheVersionsOfThePom(OptionalLibrary library) throws Exception {
    String pom = Files.readString(Path.of("pom.xml"));
    if (library.coordinates().startsWith("io.fluxccl:fluxccl-")) {
      assertThat(Path.of("jars", library.coordinates().substring("io.fluxccl:fluxccl-".length())))
          .isDirectory();
      return;
    }
    Matcher coordinates = COORDINATES.matcher(library.coordinates());
    assertThat(coordinates.find()).isTrue();
    do {
      Matcher declared =
          Pattern.compile(
                  "<groupId>%s</groupId>\\s*<artifactId>%s</artifactId>\\s*<version>\\$\\{(.*?)}</version>"
                      .formatted(coordinates.group(1), coordinates.group(2)))
              .matcher(pom);
      assertThat(declared.find()).as(coordinates.group()).isTrue();
      assertThat(pom)
          .contains("<%1$s>%2$s</%1$s>".formatted(declared.group(1), coordinates.group(3)));
    } while (coordinates.find());
  }

  @ParameterizedTest
  @EnumSource(OptionalLibrary.class)
  void shouldFindLibrariesOnTheClassPath(OptionalLibrary library) {
    assertThat(library.missingReason()).isEmpty();
  }
}

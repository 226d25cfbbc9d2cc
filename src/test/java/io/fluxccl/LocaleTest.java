// SPDX-License-Identifier: Apache-2.0
package io.fluxccl;

import static com.tngtech.archunit.lang.syntax.ArchRuleDefinition.noClasses;
import static org.assertj.core.api.Assertions.assertThat;

import com.tngtech.archunit.base.DescribedPredicate;
import com.tngtech.archunit.core.domain.AccessTarget.CodeUnitAccessTarget;
import com.tngtech.archunit.core.domain.JavaAccess;
import com.tngtech.archunit.core.domain.JavaClass;
import com.tngtech.archunit.core.importer.ClassFileImporter;
import com.tngtech.archunit.core.importer.ImportOption;
import io.fluxccl.testing.SourceFiles;
import java.nio.file.Path;
import java.util.List;
import java.util.Locale;
import java.util.Set;
import java.util.regex.Pattern;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

/** Keeps text that ranks, tools and files exchange the same in every locale. */
class LocaleTest {
  private static final Locale ARABIC = new Locale("ar", "EG");

  private static final Set<String> METHODS =
      Set.of("format", "formatted", "printf", "toLowerCase", "toUpperCase");

  private static final Set<String> TYPES =
      Set.of(
          "java.util.Formatter",
          "java.util.Scanner",
          "java.text.DecimalFormat",
          "java.text.MessageFormat",
          "java.text.SimpleDateFormat");

  /** Samples that are builds of their own, whose classes are not among those of this one. */
  private static final Pattern SOURCE =
      Pattern.compile(
          "\\.(formatted|to(Lower|Upper)Case)\\(\\)|\\.formatted\\("
              + "|\\b(String\\s*\\.format|\\.printf|out\\.format)\\((?!\\s*Locale\\.ROOT)");

  private final Locale before = Locale.getDefault();

  @AfterEach
  void restore() {
    Locale.setDefault(before);
  }

  private static boolean dependsOnTheLocale(JavaAccess<?> access) {
    if (!(access.getTarget() instanceof CodeUnitAccessTarget target)) {
      return false;
    }
    JavaClass owner = target.getOwner();
    List<String> parameters =
        target.getRawParameterTypes().stream().map(JavaClass::getName).toList();
    boolean listed =
        owner.getPackageName().startsWith("java.") && METHODS.contains(target.getName())
            || TYPES.contains(owner.getName()) && target.getName().equals("<init>");
    return listed
        && !owner.getName().equals("java.lang.Character")
        && !parameters.contains(Locale.class.getName());
  }

  @Test
  void shouldFormatInNoLocaleOfTheMachine() {
    noClasses()
        .should()
        .accessTargetWhere(
            DescribedPredicate.<JavaAccess<?>>describe(
                "format in the default locale", LocaleTest::dependsOnTheLocale))
        .because("another locale has other digits and letters; use Text.of or Locale.ROOT")
        .check(
            new ClassFileImporter()
                .withImportOption(ImportOption.Predefined.DO_NOT_INCLUDE_TESTS)
                .importPackages("io.fluxccl"));
  }

  @Test
  void shouldFormatInNoLocaleOfTheMachineInSamples() {
    for (Path file : SourceFiles.under(Path.of("samples"), "java")) {
      if (file.toString().matches("samples/[^/]*/(src/main/)?java/.*")) {
        assertThat(SourceFiles.text(file)).as(file.toString()).doesNotContainPattern(SOURCE);
      }
    }
  }

  @Test
  void shouldWriteAsciiDigitsInEveryLocale() {
    Locale.setDefault(ARABIC);
    assertThat("%d".formatted(12)).as("the locale is in effect").isNotEqualTo("12");
    assertThat(Text.of("%d of %.1f", 12, 0.5)).isEqualTo("12 of 0.5");
    assertThat(InvalidUsage.of("count=%d", 12)).hasMessage("count=12");
    assertThat(Timeout.of(1, "%d ms", 12)).hasMessage("12 ms");
    assertThat(Aborted.of(1, "step %d", 12)).hasMessage("step 12");
    assertThat(RemoteFailure.of(1, "rank %d", 12)).hasMessage("rank 12");
    assertThat(TransportFailure.of(1, "%,d bytes", 1200)).hasMessage("1,200 bytes");
  }
}

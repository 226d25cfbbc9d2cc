// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.testing;

import static org.junit.platform.engine.discovery.DiscoverySelectors.selectClass;

import io.fluxccl.testing.TestOutcome.Kind;
import java.io.IOException;
import java.io.PrintWriter;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.List;
import java.util.Set;
import java.util.stream.Stream;
import org.junit.platform.engine.TestExecutionResult;
import org.junit.platform.engine.support.descriptor.MethodSource;
import org.junit.platform.launcher.LauncherDiscoveryRequest;
import org.junit.platform.launcher.TagFilter;
import org.junit.platform.launcher.TestExecutionListener;
import org.junit.platform.launcher.TestIdentifier;
import org.junit.platform.launcher.TestPlan;
import org.junit.platform.launcher.core.LauncherDiscoveryRequestBuilder;
import org.junit.platform.launcher.core.LauncherFactory;
import org.junit.platform.reporting.legacy.xml.LegacyXmlReportGeneratingListener;

/**
 * Runs one or more test classes in this process. Writes each outcome at once, so that a later hang
 * or crash does not lose it. Started by {@link GpuTests}.
 */
final class TestClassMain implements TestExecutionListener {
  private final Path outcomes;
  private TestPlan plan;

  private TestClassMain(Path outcomes) {
    this.outcomes = outcomes;
  }

  /** Arguments: classes, tag, file for outcomes, folder for the XML report, seconds a test. */
  public static void main(String[] args) {
    LauncherDiscoveryRequest request =
        LauncherDiscoveryRequestBuilder.request()
            .selectors(Stream.of(args[0].split(",")).map(name -> selectClass(name)).toList())
            .filters(TagFilter.includeTags(args[1]))
            .configurationParameter(
                "junit.jupiter.execution.timeout.testable.method.default", args[4] + " s")
            .build();
    LauncherFactory.create()
        .execute(
            request,
            new TestClassMain(Path.of(args[2])),
            new LegacyXmlReportGeneratingListener(Path.of(args[3]), new PrintWriter(System.err)));
    // A thread of a failed test must not keep the process alive.
    System.exit(0);
  }

  @Override
  public void testPlanExecutionStarted(TestPlan started) {
    plan = started;
  }

  /** Returns the name of the row of a parameterized class that a test runs with. */
  private String row(TestIdentifier test) {
    for (TestIdentifier at = test; at != null; at = plan.getParent(at).orElse(null)) {
      if (at.getUniqueIdObject().getLastSegment().getType().equals("class-template-invocation")) {
        return at.getDisplayName() + " ";
      }
    }
    return "";
  }

  @Override
  public void executionStarted(TestIdentifier test) {
    if (test.isTest()) {
      System.out.println("== " + name(test));
      note(Kind.STARTED, test, "");
    }
  }

  @Override
  public void executionSkipped(TestIdentifier skipped, String reason) {
    Set<TestIdentifier> within = plan.getDescendants(skipped);
    List<TestIdentifier> leaves =
        within.stream().filter(t -> t.isTest() || plan.getChildren(t).isEmpty()).toList();
    for (TestIdentifier test : leaves.isEmpty() ? List.of(skipped) : leaves) {
      note(Kind.SKIPPED, test, reason);
    }
  }

  @Override
  public void executionFinished(TestIdentifier test, TestExecutionResult result) {
    Throwable why = result.getThrowable().orElse(null);
    switch (result.getStatus()) {
      case SUCCESSFUL -> {
        if (test.isTest()) {
          note(Kind.PASSED, test, "");
        }
      }
      case ABORTED -> note(Kind.SKIPPED, test, why == null ? "aborted" : why.getMessage());
      case FAILED -> {
        // A container's too: what fails before all tests would otherwise go unseen.
        System.out.println("== FAILED " + name(test));
        if (why != null) {
          why.printStackTrace(System.out);
        }
        note(Kind.FAILED, test, String.valueOf(why));
      }
    }
  }

  /** Puts the name of a method that runs several times before that of its run. */
  private String name(TestIdentifier test) {
    String parent =
        plan.getParent(test)
            .filter(p -> p.isContainer() && p.getParentIdObject().isPresent())
            .filter(p -> p.getSource().filter(MethodSource.class::isInstance).isPresent())
            .map(p -> p.getDisplayName() + " ")
            .orElse("");
    return parent + test.getDisplayName();
  }

  private void note(Kind kind, TestIdentifier test, String reason) {
    String name = row(test) + name(test);
    String line = new TestOutcome(kind, name, reason == null ? "" : reason).line() + "\n";
    try {
      Files.writeString(outcomes, line, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }
}

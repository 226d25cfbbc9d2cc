// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.testing;

import java.time.Duration;
import org.awaitility.Awaitility;
import org.junit.platform.launcher.TestExecutionListener;
import org.junit.platform.launcher.TestPlan;

/**
 * What a test waits for comes soon, but not on a busy machine: only what never comes takes this
 * long. Found by the launcher.
 */
public final class PatientAwaitility implements TestExecutionListener {
  @Override
  public void testPlanExecutionStarted(TestPlan plan) {
    Awaitility.setDefaultTimeout(Duration.ofSeconds(60));
    // By default each wait would take a tenth of a second at least.
    Awaitility.setDefaultPollDelay(Duration.ZERO);
    Awaitility.setDefaultPollInterval(Duration.ofMillis(5));
  }
}

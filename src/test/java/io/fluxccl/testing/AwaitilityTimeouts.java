// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.testing;

import java.time.Duration;
import org.awaitility.Awaitility;
import org.junit.platform.launcher.TestExecutionListener;
import org.junit.platform.launcher.TestPlan;

/**
 * Sets a long default timeout for Awaitility: awaited conditions hold soon, but later on a busy
 * machine. The JUnit launcher finds this listener.
 */
public final class AwaitilityTimeouts implements TestExecutionListener {
  @Override
  public void testPlanExecutionStarted(TestPlan plan) {
    Awaitility.setDefaultTimeout(Duration.ofSeconds(60));
    // By default each wait would take at least 100 ms.
    Awaitility.setDefaultPollDelay(Duration.ZERO);
    Awaitility.setDefaultPollInterval(Duration.ofMillis(5));
  }
}

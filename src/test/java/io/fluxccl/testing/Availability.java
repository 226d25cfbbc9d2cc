// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.testing;

import java.util.Optional;
import org.junit.jupiter.api.extension.ConditionEvaluationResult;
import org.junit.jupiter.api.extension.ExecutionCondition;
import org.junit.jupiter.api.extension.ExtensionContext;

/** Skips tests where something is missing that they need, saying what. */
abstract class Availability implements ExecutionCondition {
  /** Returns why the test can't run here, if so. */
  abstract Optional<String> missing(ExtensionContext context);

  @Override
  public ConditionEvaluationResult evaluateExecutionCondition(ExtensionContext context) {
    return missing(context)
        .map(ConditionEvaluationResult::disabled)
        .orElseGet(() -> ConditionEvaluationResult.enabled("nothing is missing"));
  }
}

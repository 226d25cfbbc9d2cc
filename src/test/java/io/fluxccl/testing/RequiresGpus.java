// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.testing;

import io.fluxccl.device.cuda.CudaDriver;
import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.extension.ConditionEvaluationResult;
import org.junit.jupiter.api.extension.ExecutionCondition;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.platform.commons.support.AnnotationSupport;

/** A test that needs GPUs; skipped, saying why, where there are fewer. */
@Target({ElementType.TYPE, ElementType.METHOD})
@Retention(RetentionPolicy.RUNTIME)
@Tag("gpu")
@ExtendWith(RequiresGpus.Condition.class)
public @interface RequiresGpus {
  /** The number of GPUs. */
  int value() default 1;

  /** Compares this number with the GPUs of the machine. */
  final class Condition implements ExecutionCondition {
    @Override
    public ConditionEvaluationResult evaluateExecutionCondition(ExtensionContext context) {
      int needed =
          context
              .getElement()
              .flatMap(e -> AnnotationSupport.findAnnotation(e, RequiresGpus.class))
              .map(RequiresGpus::value)
              .orElse(0);
      int found = CudaDriver.count();
      return found >= needed
          ? ConditionEvaluationResult.enabled(found + " GPUs")
          : ConditionEvaluationResult.disabled(
              "needs "
                  + needed
                  + " GPUs, there are "
                  + found
                  + CudaDriver.unavailableBecause().map(why -> ": " + why).orElse(""));
    }
  }
}

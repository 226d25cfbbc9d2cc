// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.testing;

import io.fluxccl.device.cuda.CudaDriver;
import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;
import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.extension.ConditionEvaluationResult;
import org.junit.jupiter.api.extension.ExecutionCondition;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.platform.commons.support.AnnotationSupport;

/**
 * A test on the fake CUDA driver whose kernels really run, compiled for the CPU. The build runs
 * these in a JVM of their own; elsewhere they are skipped, saying why, unless they are {@link
 * RequiresGpus} too: those run in both places.
 */
@Target({ElementType.TYPE, ElementType.METHOD})
@Retention(RetentionPolicy.RUNTIME)
@Tag("emulated-gpus")
@ExtendWith(EmulatedGpus.Condition.class)
public @interface EmulatedGpus {
  /** Whether the GPUs that this process sees are emulated. */
  boolean HERE = "1".equals(System.getenv("FAKE_CUDA_EMULATE"));

  /** Looks where it runs. */
  final class Condition implements ExecutionCondition {
    @Override
    public ConditionEvaluationResult evaluateExecutionCondition(ExtensionContext context) {
      if (!HERE) {
        // The condition is asked about a class and about each of its methods.
        boolean onRealOnesToo =
            AnnotationSupport.isAnnotated(context.getElement(), RequiresGpus.class)
                || AnnotationSupport.isAnnotated(context.getTestClass(), RequiresGpus.class);
        return onRealOnesToo
            ? ConditionEvaluationResult.enabled("may run on real GPUs")
            : ConditionEvaluationResult.disabled(
                "runs in the build's execution emulated-gpus, whose driver runs kernels");
      }
      if (CudaDriver.count() == 0) {
        return ConditionEvaluationResult.disabled(
            "the fake driver was not built; is gcc there? "
                + CudaDriver.unavailableBecause().orElse(""));
      }
      boolean races = "1".equals(System.getenv("FAKE_CUDA_RACES"));
      Path kernels =
          Path.of(
              System.getenv("LD_LIBRARY_PATH"),
              races ? "libfluxccl_emulation_races.so" : "libfluxccl_emulation.so");
      return Files.exists(kernels)
          ? ConditionEvaluationResult.enabled(CudaDriver.count() + " emulated GPUs")
          : ConditionEvaluationResult.disabled(
              "the kernels were not built for the CPU; is g++ there?");
    }
  }
}

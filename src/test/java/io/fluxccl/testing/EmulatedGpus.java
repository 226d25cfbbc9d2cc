// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.testing;

import io.fluxccl.device.cuda.CudaDriver;
import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Optional;
import org.junit.jupiter.api.Tag;
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
  final class Condition extends Availability {
    @Override
    Optional<String> missing(ExtensionContext context) {
      if (!HERE) {
        // The condition is asked about a class and about each of its methods.
        boolean onRealOnesToo =
            AnnotationSupport.isAnnotated(context.getElement(), RequiresGpus.class)
                || AnnotationSupport.isAnnotated(context.getTestClass(), RequiresGpus.class);
        return Optional.of("runs in the build's execution emulated-gpus, whose driver runs kernels")
            .filter(any -> !onRealOnesToo);
      }
      boolean races = "1".equals(System.getenv("FAKE_CUDA_RACES"));
      Path kernels =
          Path.of(
              System.getenv("LD_LIBRARY_PATH"),
              races ? "libfluxccl_emulation_races.so" : "libfluxccl_emulation.so");
      String why = CudaDriver.unavailableBecause().orElse("is g++ there for its kernels?");
      return Optional.of("the fake driver was not built; is gcc there? " + why)
          .filter(any -> CudaDriver.count() == 0 || !Files.exists(kernels));
    }
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.testing;

import io.fluxccl.device.cuda.CudaDriver;
import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;
import java.util.Optional;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.platform.commons.support.AnnotationSupport;

/**
 * A test that needs GPUs; skipped, saying why, where there are fewer. With {@code
 * -Dfluxccl.test.gpus=4} tests for up to 4 GPUs run anyway, with several ranks on each GPU.
 */
@Target({ElementType.TYPE, ElementType.METHOD})
@Retention(RetentionPolicy.RUNTIME)
@Tag("gpu")
@ExtendWith(RequiresGpus.Condition.class)
public @interface RequiresGpus {
  /** The number of GPUs. */
  int value() default 1;

  /** Compares this number with the GPUs of the machine. */
  final class Condition extends Availability {
    @Override
    Optional<String> missing(ExtensionContext context) {
      int needed =
          context
              .getElement()
              .flatMap(e -> AnnotationSupport.findAnnotation(e, RequiresGpus.class))
              .map(RequiresGpus::value)
              .orElse(0);
      int found = CudaDriver.count();
      if (found > 0) {
        found = Math.max(found, Integer.getInteger("fluxccl.test.gpus", 0));
      }
      String why = CudaDriver.unavailableBecause().map(reason -> ": " + reason).orElse("");
      return found < needed
          ? Optional.of("needs " + needed + " GPUs, there are " + found + why)
          : Optional.empty();
    }
  }
}

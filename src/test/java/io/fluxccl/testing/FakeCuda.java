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

/**
 * A test on the fake CUDA driver of {@code src/test/native/fakecuda}. The build runs these in a JVM
 * of their own, where that driver is the one that is found; elsewhere they are skipped, saying why.
 */
@Target({ElementType.TYPE, ElementType.METHOD})
@Retention(RetentionPolicy.RUNTIME)
@Tag("fake-cuda")
@ExtendWith(FakeCuda.Condition.class)
public @interface FakeCuda {
  /** Looks where it runs. */
  final class Condition extends Availability {
    @Override
    Optional<String> missing(ExtensionContext context) {
      if (!"1".equals(System.getenv("FLUXCCL_FAKE_CUDA"))) {
        return Optional.of("runs in the build's execution fake-cuda, whose JVM finds the driver");
      }
      String why = CudaDriver.unavailableBecause().orElse("");
      return Optional.of("the fake driver was not built; is gcc there? " + why)
          .filter(any -> CudaDriver.count() == 0);
    }
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.testing;

import io.fluxccl.NativeLibrary;
import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;
import java.util.Optional;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.extension.ExtensionContext;

/** A test that needs libfluxccl.so; skipped, saying why, in a build without it. */
@Target({ElementType.TYPE, ElementType.METHOD})
@Retention(RetentionPolicy.RUNTIME)
@ExtendWith(RequiresNativeLibrary.Condition.class)
public @interface RequiresNativeLibrary {
  /** Asks whether it is there. */
  final class Condition extends Availability {
    @Override
    Optional<String> missing(ExtensionContext context) {
      return NativeLibrary.unavailableBecause().map(why -> "no libfluxccl.so: " + why);
    }
  }
}

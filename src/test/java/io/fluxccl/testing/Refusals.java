// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.testing;

import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.InvalidUsage;
import org.assertj.core.api.AbstractThrowableAssert;
import org.assertj.core.api.ThrowableAssert.ThrowingCallable;

/** Asserts that the library refuses a call. */
public final class Refusals {
  private Refusals() {}

  /** Asserts that a call throws an {@link InvalidUsage} whose message contains each text. */
  public static void assertRefused(ThrowingCallable call, String... texts) {
    AbstractThrowableAssert<?, ?> thrown =
        assertThatThrownBy(call).isInstanceOf(InvalidUsage.class);
    for (String text : texts) {
      thrown.hasMessageContaining(text);
    }
  }
}

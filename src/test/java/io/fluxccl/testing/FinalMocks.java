// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.testing;

import static org.assertj.core.api.Assertions.assertThat;

import org.mockito.MockMakers;
import org.mockito.Mockito;

/**
 * Mocks final classes. Mockito changes the methods of such a class and of all its superclasses for
 * the rest of the JVM; they then allocate at each call, which fails the tests that measure
 * allocation. All other mocks are subclasses, which change nothing.
 */
public final class FinalMocks {
  private FinalMocks() {}

  /** Returns a mock of a class that no measured loop calls. */
  public static <T> T mockFinal(Class<T> type) {
    assertThat(type.getName()).as("a class of hot paths").doesNotContain("transport", "device");
    return Mockito.mock(type, Mockito.withSettings().mockMaker(MockMakers.INLINE));
  }
}

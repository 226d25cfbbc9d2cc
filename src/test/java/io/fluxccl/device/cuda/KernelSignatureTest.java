// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import static org.assertj.core.api.Assertions.assertThatCode;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.InvalidUsage;
import io.fluxccl.device.KernelArgs;
import org.junit.jupiter.api.Test;

class KernelSignatureTest {
  private final KernelSignature signature = new KernelSignature(8, 4, 24);

  @Test
  void shouldRefuseAnotherNumberOfArguments() {
    assertThatCode(() -> signature.checkCount("k", KernelArgs.of(1, 2, 3)))
        .doesNotThrowAnyException();
    assertThatThrownBy(() -> signature.checkCount("k", KernelArgs.of(1L, 2)))
        .isInstanceOf(InvalidUsage.class)
        .hasMessage("kernel k takes 3 arguments of 8, 4, 24 bytes, was given 2: KernelArgs[1, 2]");
    assertThatThrownBy(() -> new KernelSignature().checkCount("k", KernelArgs.of(1L)))
        .hasMessageStartingWith("kernel k takes 0 arguments, was given 1");
  }

  @Test
  void shouldNameTheExpectedTypeIfAnArgumentHasAnotherSize() {
    KernelArgs args = KernelArgs.of(1, 2, new byte[16]);
    assertThatThrownBy(() -> signature.checkLength("k", args, 0, 4))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContaining("argument 0 of kernel k takes 8 bytes, was given 4 (Integer)")
        .hasMessageContaining("give a Long");
    assertThatCode(() -> signature.checkLength("k", args, 1, 4)).doesNotThrowAnyException();
    assertThatThrownBy(() -> signature.checkLength("k", args, 2, 16))
        .hasMessageContaining("takes 24 bytes, was given 16 (byte[])");
  }

  @Test
  void shouldAcceptAllArgumentsIfTheSignatureIsUnknown() {
    assertThatCode(
            () -> {
              KernelSignature.UNKNOWN.checkCount("k", KernelArgs.of(1));
              KernelSignature.UNKNOWN.checkLength("k", KernelArgs.of(1), 0, 3);
            })
        .doesNotThrowAnyException();
  }
}

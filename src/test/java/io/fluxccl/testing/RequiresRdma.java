// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.testing;

import io.fluxccl.transport.Transport;
import io.fluxccl.transport.ib.IbTransport;
import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;
import java.util.Optional;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.extension.ExtensionContext;

/** A test that needs an RDMA device; skipped, saying why, where there is none. */
@Target({ElementType.TYPE, ElementType.METHOD})
@Retention(RetentionPolicy.RUNTIME)
@Tag("rdma")
@ExtendWith(RequiresRdma.Condition.class)
public @interface RequiresRdma {
  /** Asks whether IB0 is there. */
  final class Condition extends Availability {
    @Override
    Optional<String> missing(ExtensionContext context) {
      return new IbTransport().unavailableBecause(Transport.IB0).map(why -> "no IB0: " + why);
    }
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import io.fluxccl.collective.Collective;

/** Whether input and output share memory. */
enum BufferAliasing {
  /** Two buffers. */
  OUT_OF_PLACE,
  /** One buffer, as {@link io.fluxccl.collective.CollectiveCall} defines it. */
  IN_PLACE;

  /** Returns whether a collective supports it. A barrier, without buffers, is out of place. */
  boolean isPossible(Collective collective) {
    return collective == Collective.FUSED_ALL_REDUCE
        ? this == IN_PLACE
        : this == OUT_OF_PLACE
            || collective != Collective.ALL_TO_ALL_V
                && collective != Collective.SEND_RECEIVE
                && collective != Collective.BARRIER
                && !collective.isOfExperts();
  }
}

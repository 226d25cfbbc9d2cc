// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.proxy;

/** The proxy's next step after a {@link ProxyHandler} has handled a trigger. */
public enum ProxyHandlerResult {
  /** Continue; producers are notified at the end of the batch. */
  CONTINUE,
  /** Notify producers at once that the trigger was handled, then continue. */
  FLUSH_FIFO_TAIL_AND_CONTINUE,
  /**
   * Notify producers at once, then end the loop. Queued triggers stay in the ring for the next
   * start.
   */
  STOP
}

package io.fluxccl.proxy;

/** What the proxy does after a {@link ProxyHandler} has handled a trigger. */
public enum ProxyHandlerResult {
  /** Go on; producers are notified at the end of the batch. */
  CONTINUE,
  /** Notify producers at once that the trigger was handled, then go on. */
  FLUSH_FIFO_TAIL_AND_CONTINUE,
  /**
   * Notify producers at once, then end the loop. What is queued behind stays in the ring, for the
   * next start.
   */
  STOP
}

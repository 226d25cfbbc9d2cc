// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.proxy;

/** Handles the triggers of a {@link Proxy}. */
@FunctionalInterface
public interface ProxyHandler {
  /**
   * Handles one trigger. Called from the proxy thread, in the order of positions; must not block
   * and should not allocate. Its exceptions go to the {@link ProxyErrorHandler}; the trigger counts
   * as handled and the loop continues.
   *
   * @param first the first word
   * @param second the second word, without the ring's commit bit
   * @param position the position of the trigger in the ring, counted from 0
   * @return the proxy's next step; not null
   */
  ProxyHandlerResult handle(long first, long second, long position);
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.proxy;

import io.fluxccl.Experimental;

/**
 * Work that a {@link Proxy} does between triggers, such as checking whether a transport has
 * drained, so that no handler has to wait for it.
 */
@FunctionalInterface
@Experimental
public interface ProxyDuty {
  /** No duty. */
  ProxyDuty NONE = () -> 0;

  /**
   * Does the work that can be done now. Called from the proxy thread once per duty cycle; must not
   * block and should not allocate. Its exceptions go to {@link ProxyErrorHandler#onLoopError}.
   *
   * @return the work count; if it is 0 the proxy may idle
   */
  int doWork();

  /**
   * Returns whether work has begun that only a later {@link #doWork} finishes. Called when the
   * proxy ends. The proxy then continues the duty, for at most {@link ProxyOptions#stopTimeout()}.
   *
   * @return false if nothing is lost when {@link #doWork} is not called again
   */
  default boolean isPending() {
    return false;
  }

  /**
   * Abandons pending work, because the proxy has ended and does not call {@link #doWork} until it
   * is started again. Called from the proxy thread, or from the thread that steps by hand.
   */
  default void giveUp() {}
}

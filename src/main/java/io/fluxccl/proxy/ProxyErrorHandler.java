// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.proxy;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Receives the errors of a {@link Proxy}. Called from the proxy thread, or from the thread that
 * closes the proxy.
 */
@FunctionalInterface
public interface ProxyErrorHandler {
  /** The handler that logs errors. */
  ProxyErrorHandler LOGGING = logging(LoggerFactory.getLogger(Proxy.class));

  /**
   * Called when a handler threw an exception for a trigger, which counts as handled. Also called
   * for the first queued trigger when the proxy ends with triggers queued.
   *
   * @param position the position of the trigger
   * @param first its first word
   * @param second its second word, without the commit bit
   * @param error the handler's exception; {@link io.fluxccl.Timeout} or {@link io.fluxccl.Aborted}
   *     if the trigger was not handled
   */
  void onTriggerError(long position, long first, long second, Throwable error);

  /**
   * Called when code other than the handling of a trigger, such as the {@link ProxyDuty}, threw an
   * exception. The loop continues.
   *
   * @param error the exception
   */
  default void onLoopError(Throwable error) {
    LOGGING.onLoopError(error);
  }

  private static ProxyErrorHandler logging(Logger log) {
    return new ProxyErrorHandler() {
      @Override
      public void onTriggerError(long position, long first, long second, Throwable error) {
        log.error(
            "trigger failed: position={} first=0x{} second=0x{}, as a channel's: {}",
            position,
            Long.toHexString(first),
            Long.toHexString(second),
            ChannelTrigger.toString(first, second),
            error);
      }

      @Override
      public void onLoopError(Throwable error) {
        log.error("proxy loop failed; the proxy continues", error);
      }
    };
  }
}

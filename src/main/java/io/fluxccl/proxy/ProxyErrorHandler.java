package io.fluxccl.proxy;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Learns what went wrong in a {@link Proxy}. Called from the proxy thread, or from the thread that
 * closes the proxy.
 */
@FunctionalInterface
public interface ProxyErrorHandler {
  /** Writes to the log. */
  ProxyErrorHandler LOGGING = logging(LoggerFactory.getLogger(Proxy.class));

  /**
   * A handler threw on a trigger, which counts as handled; or the proxy ended with triggers queued,
   * of which this is the first.
   *
   * @param position of the trigger
   * @param first its first word
   * @param second its second word, without the commit bit
   * @param error what the handler threw; {@link io.fluxccl.Timeout} or {@link io.fluxccl.Aborted}
   *     if the trigger was not handled any more
   */
  void onTriggerError(long position, long first, long second, Throwable error);

  /**
   * Something threw that belongs to no trigger, such as the {@link ProxyDuty}. The loop goes on.
   *
   * @param error what was thrown
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
        log.error("proxy loop failed and goes on", error);
      }
    };
  }
}

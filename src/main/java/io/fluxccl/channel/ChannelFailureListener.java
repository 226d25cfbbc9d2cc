package io.fluxccl.channel;

import io.fluxccl.FluxCclException;
import org.slf4j.LoggerFactory;

/**
 * Is notified that a proxy channel has failed. Called from the proxy thread, once for each
 * semaphore.
 */
@FunctionalInterface
public interface ChannelFailureListener {
  /** Writes to the log. */
  ChannelFailureListener LOGGING =
      (semaphoreId, peer, reason) ->
          LoggerFactory.getLogger(ProxyService.class)
              .error("proxy channel failed: semaphore={} peer={}", semaphoreId, peer, reason);

  /**
   * A channel has failed: triggers of kernels on it are dropped from now on, their flushes return
   * false.
   *
   * @param semaphoreId of the channel
   * @param peer the rank at the other end
   * @param reason why
   */
  void onChannelFailure(int semaphoreId, int peer, FluxCclException reason);
}

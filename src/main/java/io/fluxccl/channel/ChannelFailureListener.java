// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.channel;

import io.fluxccl.Experimental;
import io.fluxccl.FluxCclException;
import org.slf4j.LoggerFactory;

/**
 * Receives the failures of proxy channels. Called from the proxy thread, at most once for each
 * semaphore.
 */
@FunctionalInterface
@Experimental
public interface ChannelFailureListener {
  /** The listener that logs failures. */
  ChannelFailureListener LOGGING =
      (semaphoreId, peer, reason) ->
          LoggerFactory.getLogger(ProxyService.class)
              .error("proxy channel failed: semaphore={} peer={}", semaphoreId, peer, reason);

  /**
   * Called when a channel has failed. From now on its triggers are dropped, and its flushes return
   * false.
   *
   * @param semaphoreId the semaphore id of the channel
   * @param peer the rank at the other end
   * @param reason the failure
   */
  void onChannelFailure(int semaphoreId, int peer, FluxCclException reason);
}

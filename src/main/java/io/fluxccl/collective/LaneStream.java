// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.device.DeviceStream;

/**
 * The stream of a lane. Closing it closes the lane's own stream and leaves a caller's open.
 *
 * @param stream on which the lane enqueues
 * @param isOwn whether the lane closes it
 */
record LaneStream(DeviceStream stream, boolean isOwn) implements AutoCloseable {
  @Override
  public void close() {
    if (isOwn) {
      stream.close();
    }
  }
}

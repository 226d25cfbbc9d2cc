// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin;

import io.fluxccl.InvalidUsage;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import org.agrona.CloseHelper;

/**
 * The {@value NetPlugin#HANDLE_BYTES} bytes that a sender needs to reach a listener. A plugin also
 * keeps the progress of a connect in it. Not thread-safe.
 */
public final class NetHandle {
  private final ByteBuffer bytes;
  private Object progress;

  /**
   * Creates a handle from the bytes that were received from the listener.
   *
   * @param bytes the bytes that {@link NetListenComm#handle()} returned, at most {@value
   *     NetPlugin#HANDLE_BYTES}; they are copied, and the rest is zero
   * @throws InvalidUsage if there are more bytes
   */
  public NetHandle(byte[] bytes) {
    if (bytes.length > NetPlugin.HANDLE_BYTES) {
      throw new NetMisuse(
          "a network handle has at most " + NetPlugin.HANDLE_BYTES + " bytes, not " + bytes.length);
    }
    this.bytes = ByteBuffer.allocateDirect(NetPlugin.HANDLE_BYTES).order(ByteOrder.LITTLE_ENDIAN);
    this.bytes.put(0, bytes);
  }

  /**
   * Returns the {@value NetPlugin#HANDLE_BYTES} bytes as a direct, little-endian buffer; plugins
   * may write to it.
   */
  public ByteBuffer bytes() {
    return bytes;
  }

  /** Returns the object that the connecting plugin last passed to {@link #keep}, or null. */
  public Object progress() {
    return progress;
  }

  /**
   * Keeps the progress of a connect until the plugin's next call.
   *
   * @param progress the plugin's own object, or null; {@link #abandon} closes an {@link
   *     AutoCloseable}
   */
  public void keep(Object progress) {
    this.progress = progress;
  }

  /**
   * Abandons a connect that is not complete, as far as the plugin can. Called by the code that
   * connects. Idempotent.
   */
  public void abandon() {
    if (progress instanceof AutoCloseable begun) {
      progress = null;
      CloseHelper.close(begun);
    }
  }
}

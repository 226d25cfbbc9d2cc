package io.fluxccl.netplugin;

import io.fluxccl.InvalidUsage;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import org.agrona.CloseHelper;

/**
 * What a sender needs to reach a listener: {@value NetPlugin#HANDLE_BYTES} bytes, and the place
 * where a plugin keeps how far a connect has come. Not thread-safe.
 */
public final class NetHandle {
  private final ByteBuffer bytes;
  private Object progress;

  /**
   * A handle that was received.
   *
   * @param bytes what {@link NetListenComm#handle()} gave, at most {@value NetPlugin#HANDLE_BYTES}
   *     bytes; copied, the rest is zero
   * @throws InvalidUsage if there are more
   */
  public NetHandle(byte[] bytes) {
    if (bytes.length > NetPlugin.HANDLE_BYTES) {
      throw new InvalidUsage(
          "a network handle has at most " + NetPlugin.HANDLE_BYTES + " bytes, not " + bytes.length);
    }
    this.bytes = ByteBuffer.allocateDirect(NetPlugin.HANDLE_BYTES).order(ByteOrder.LITTLE_ENDIAN);
    this.bytes.put(0, bytes);
  }

  /**
   * The {@value NetPlugin#HANDLE_BYTES} bytes, direct, little-endian; plugins may write to them.
   */
  public ByteBuffer bytes() {
    return bytes;
  }

  /** What {@link #keep} was given last, or null: for the plugin that connects. */
  public Object progress() {
    return progress;
  }

  /**
   * Keeps how far the plugin has come until the next call.
   *
   * @param progress the plugin's, or null; closed by {@link #abandon} where it can be
   */
  public void keep(Object progress) {
    this.progress = progress;
  }

  /**
   * Gives up a connect that has not come to its end, as far as the plugin can. For who connects.
   * Idempotent.
   */
  public void abandon() {
    if (progress instanceof AutoCloseable begun) {
      progress = null;
      CloseHelper.close(begun);
    }
  }
}

package io.fluxccl.transport.ib.disni;

import java.io.IOException;

/**
 * The calls that DiSNI lacks, in {@code native/disni/cm_calls.c}. Ids and channels are DiSNI's
 * object ids, which are addresses.
 */
final class CmCalls {
  private CmCalls() {}

  /** Returns the private data of a connection request. */
  static native byte[] privateData(long id);

  /** Returns the status of an id's last event: a negative errno, the peer's reason, or 0. */
  static native int status(long id);

  /**
   * Sets the time after which a packet is resent to 4.096 us * 2^exponent. Called before connecting
   * or accepting.
   */
  static native void setAckTimeout(long id, byte exponent) throws IOException;

  /** Rejects a connection request. */
  static native void reject(long id) throws IOException;

  /** Returns whether a channel has an event. */
  static native boolean hasEvent(long channel);
}

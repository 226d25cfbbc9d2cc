package io.fluxccl.transport.ib.disni;

import java.io.IOException;

/**
 * What DiSNI has no method for, in {@code native/disni/cm_calls.c}. Ids and channels are DiSNI's
 * object ids, which are addresses.
 */
final class CmCalls {
  private CmCalls() {}

  /** What a connection request carried. */
  static native byte[] privateData(long id);

  /** The status of the last event of an id: a negative errno, a reason of the peer's, or 0. */
  static native int status(long id);

  /** Before connecting or accepting: resend after 4.096 us * 2^exponent. */
  static native void setAckTimeout(long id, byte exponent) throws IOException;

  /** Says no to a connection request. */
  static native void reject(long id) throws IOException;

  /** Whether a channel has an event. */
  static native boolean hasEvent(long channel);
}

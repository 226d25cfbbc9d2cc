// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import io.fluxccl.NativeLibrary;

/**
 * Passes file descriptors over abstract Unix sockets, with one request and one response. Negative
 * results are negated errnos. Only methods with a timeout wait.
 */
final class DescriptorCalls {
  static final int EPERM = 1;
  static final int EAGAIN = 11;
  static final int ECONNREFUSED = 111;
  static final int ETIMEDOUT = 110;

  static {
    NativeLibrary.isAvailable(); // loads it
  }

  private DescriptorCalls() {}

  /** Returns a listening socket of that name. */
  static native int listen(byte[] name);

  /**
   * Returns the next client; -EAGAIN if there is none, -EPERM if a client of another user was
   * refused.
   */
  static native int accept(int server);

  /**
   * Returns 1 and the token, 0 if it has not arrived yet, or a negative value if it cannot arrive
   * any more.
   */
  static native int receiveToken(int client, byte[] token);

  /** Sends the status, with the descriptor unless that is negative. */
  static native int answer(int client, int status, int descriptor);

  /**
   * Waits until some of the first {@code count} descriptors, at most 256, are readable or closed,
   * and marks them.
   */
  static native int awaitReadable(
      int[] descriptors, boolean[] readable, int count, int timeoutMillis);

  /** Returns an eventfd that {@link #awaitReadable} can wait for. */
  static native int newEvent();

  /** Makes an eventfd readable. */
  static native int signalEvent(int event);

  /** Closes any descriptor. */
  static native void close(int descriptor);

  /** Returns a socket connected to the server of that name, which is a process of this user. */
  static native int connect(byte[] name, int timeoutMillis);

  /** Sends the token. */
  static native int ask(int client, byte[] token);

  /** Returns the descriptor that the server sends; 0 with a status when it refuses. */
  static native int receiveDescriptor(int client, int timeoutMillis, int[] status);
}

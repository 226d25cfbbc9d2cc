// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import io.fluxccl.NativeLibrary;

/**
 * File descriptors over abstract Unix sockets, one message there and one back. Negative results are
 * negated errnos; nothing waits but what takes a time-out.
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
   * Returns the next client; -EAGAIN when there is none, -EPERM when another user's was turned
   * away.
   */
  static native int accept(int server);

  /** 1 and the token, 0 when it has not come yet, negative when it never will. */
  static native int receiveToken(int client, byte[] token);

  /** Answers; with a descriptor unless that is negative. */
  static native int answer(int client, int status, int descriptor);

  /**
   * Waits until some of the first {@code count}, at most 256, can be read or are dead; marks them.
   */
  static native int awaitReadable(
      int[] descriptors, boolean[] readable, int count, int timeoutMillis);

  /** Returns an event that {@link #awaitReadable} can wait for. */
  static native int newEvent();

  /** Makes it readable. */
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

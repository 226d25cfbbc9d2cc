// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.testing;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.BindException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.util.Random;
import java.util.concurrent.atomic.AtomicInteger;

/** Unused ports of the loopback interface. */
public final class Ports {
  /** Below Linux's ephemeral ports. */
  private static final int FIRST = 10_000;

  private static final int COUNT = 20_000;
  private static final AtomicInteger NEXT = new AtomicInteger(new Random().nextInt(COUNT));

  private Ports() {}

  /**
   * Returns a port that is free, and that the system gives to no socket by itself. So it stays
   * free, also where many jobs begin at the same time.
   */
  public static int reserved() {
    while (true) {
      int port = FIRST + NEXT.getAndIncrement() % COUNT;
      try (ServerSocket socket = new ServerSocket(port, 1, InetAddress.getLoopbackAddress())) {
        return socket.getLocalPort();
      } catch (BindException taken) {
        continue;
      } catch (IOException e) {
        throw new UncheckedIOException(e);
      }
    }
  }
}

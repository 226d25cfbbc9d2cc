package io.fluxccl.testing;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;

/** Ports of the loopback that nobody listens at. */
public final class Ports {
  private Ports() {}

  /** Returns a port that was free a moment ago. */
  public static int free() throws IOException {
    try (ServerSocket socket = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
      return socket.getLocalPort();
    }
  }
}

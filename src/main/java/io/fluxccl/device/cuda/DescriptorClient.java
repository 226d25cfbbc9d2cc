// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import io.fluxccl.Deadline;
import io.fluxccl.DeviceFailure;
import io.fluxccl.NativeLibrary;
import java.nio.charset.StandardCharsets;

/** Asks another process's {@link DescriptorServer} for a file descriptor. */
final class DescriptorClient {
  private DescriptorClient() {}

  /**
   * Requests a descriptor. Blocks until the deadline at most.
   *
   * @param socketName the abstract name of the server's socket
   * @param token the token of the descriptor
   * @param deadline for the whole exchange
   * @return a descriptor that the caller closes
   * @throws DeviceFailure if the server has ended, refuses, belongs to another user or does not
   *     answer
   */
  static int request(String socketName, byte[] token, Deadline deadline) {
    NativeLibrary.require("mapping another process's VMM memory");
    byte[] name = socketName.getBytes(StandardCharsets.UTF_8);
    int client = DescriptorCalls.connect(name, millisLeft(deadline));
    if (client < 0) {
      throw failure(socketName, -client, problem(-client, deadline));
    }
    try {
      int[] status = new int[1];
      int result = DescriptorCalls.ask(client, token);
      if (result == 0) {
        result = DescriptorCalls.receiveDescriptor(client, millisLeft(deadline), status);
      }
      if (result < 0) {
        throw failure(socketName, -result, problem(-result, deadline));
      }
      if (status[0] != 0) {
        boolean unknown = status[0] == DescriptorServer.UNKNOWN;
        throw failure(
            socketName,
            0,
            unknown
                ? "the memory has been freed, or the token is not its own"
                : "it refuses with status " + status[0]);
      }
      return result;
    } finally {
      DescriptorCalls.close(client);
    }
  }

  private static int millisLeft(Deadline deadline) {
    return (int) Math.min(Integer.MAX_VALUE, deadline.remainingMillis());
  }

  private static DeviceFailure failure(String socketName, int errno, String reason) {
    return new DeviceFailure(
        errno,
        "DESCRIPTOR",
        "asking the memory's owner at @" + socketName + " for its descriptor failed: " + reason);
  }

  private static String problem(int errno, Deadline deadline) {
    return switch (errno) {
      case DescriptorCalls.ECONNREFUSED ->
          "no process listens there: the owner has ended, freed all its memory, or runs in"
              + " another network namespace (containers must share the host's)";
      case DescriptorCalls.ETIMEDOUT -> "no answer within " + deadline.timeout().toMillis() + " ms";
      case DescriptorCalls.EPERM -> "it is a process of another user";
      default -> NativeLibrary.errorText(errno);
    };
  }
}

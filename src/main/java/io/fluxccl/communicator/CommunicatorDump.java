package io.fluxccl.communicator;

import io.fluxccl.bootstrap.Bootstrap;
import io.fluxccl.transport.Connection;
import java.util.Set;

/** Writes the text of {@link Communicator#dump()}. */
final class CommunicatorDump {
  private CommunicatorDump() {}

  static String of(Communicator communicator, SetupQueue setups, Set<Connection> connections) {
    Bootstrap bootstrap = communicator.bootstrap();
    int waitingFor = communicator.abortFlag().waitingFor();
    StringBuilder out = new StringBuilder(256);
    out.append(
        String.format(
            "communicator rank=%d of %d, failure=%s%n",
            bootstrap.rank(), bootstrap.nRanks(), communicator.failure()));
    out.append(
        String.format(
            "  kernels last waited long for %s%n",
            communicator.abortFlag().isWaitingForOwnProxy()
                ? "this rank's proxy"
                : "rank " + (waitingFor < 0 ? "none" : waitingFor)));
    bootstrap
        .unresponsiveRank()
        .ifPresent(rank -> out.append(String.format("  rank %d answers no heartbeat%n", rank)));
    setups.dump(out);
    for (Connection each : connections) {
      out.append(
          String.format(
              "  connection to rank %d tag %d over %s: %s%n",
              each.remoteRank(),
              each.tag(),
              each.transport(),
              each.failure() == null ? "works" : each.failure()));
    }
    return out.toString();
  }
}

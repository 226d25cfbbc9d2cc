package io.fluxccl.communicator;

import io.fluxccl.FluxCclException;
import io.fluxccl.bootstrap.Bootstrap;
import io.fluxccl.transport.Connection;
import java.util.Set;

/** Writes the text of {@link Communicator#dump()}. */
final class CommunicatorDump {
  private CommunicatorDump() {}

  static String of(Communicator communicator, SetupQueue setups, Set<Connection> connections) {
    Bootstrap bootstrap = communicator.bootstrap();
    int waitingFor = communicator.abortFlag().waitingFor();
    String awaited =
        communicator.abortFlag().isWaitingForOwnProxy()
            ? "this rank's proxy"
            : "rank " + (waitingFor < 0 ? "none" : waitingFor);
    StringBuilder out = new StringBuilder(256);
    String head = "communicator rank=%d of %d, failure=%s%n  kernels last waited long for %s%n";
    out.append(
        head.formatted(bootstrap.rank(), bootstrap.nRanks(), communicator.failure(), awaited));
    bootstrap
        .unresponsiveRank()
        .ifPresent(rank -> out.append("  rank %d answers no heartbeat%n".formatted(rank)));
    setups.dump(out);
    for (Connection each : connections) {
      FluxCclException trouble = each.failure() == null ? each.interruption() : each.failure();
      Object state = trouble == null ? "works" : trouble;
      out.append(
          "  connection to rank %d tag %d over %s: %s%n"
              .formatted(each.remoteRank(), each.tag(), each.transport(), state));
    }
    return out.toString();
  }
}

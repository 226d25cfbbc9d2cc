// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.communicator;

import io.fluxccl.FluxCclException;
import io.fluxccl.Text;
import io.fluxccl.bootstrap.Bootstrap;
import io.fluxccl.concurrent.RankLog;
import io.fluxccl.trace.DumpFile;
import io.fluxccl.trace.FlightEvents;
import io.fluxccl.trace.FlightRecorder;
import io.fluxccl.trace.Snapshot;
import io.fluxccl.transport.Connection;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.function.Supplier;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Describes a communicator: the text of {@link Communicator#dump()}, its part of this rank's
 * snapshot, and the output of its failure. Thread-safe; takes no lock that is held while user code
 * runs.
 */
final class CommunicatorDump implements AutoCloseable {
  private static final Logger LOG = LoggerFactory.getLogger(CommunicatorDump.class);

  private final Communicator communicator;
  private final Bootstrap bootstrap;
  private final SetupQueue setups;
  private final Supplier<Set<Connection>> connections;
  private final FlightRecorder recorder;
  private final Runnable endOfReports;

  CommunicatorDump(
      Communicator communicator,
      SetupQueue setups,
      Supplier<Set<Connection>> connections,
      CommunicatorOptions options) {
    this.communicator = communicator;
    this.bootstrap = communicator.bootstrap();
    this.setups = setups;
    this.connections = connections;
    this.recorder =
        new FlightRecorder(
            bootstrap.rank(),
            () -> communicator.abortFlag().waitingFor(),
            options.recordedCalls(),
            options.deviceTimes());
    this.endOfReports = bootstrap.report(this::snapshot);
  }

  FlightRecorder recorder() {
    return recorder;
  }

  String text() {
    int waitingFor = communicator.abortFlag().waitingFor();
    String awaited =
        communicator.abortFlag().isWaitingForOwnProxy()
            ? "this rank's proxy"
            : "rank " + (waitingFor < 0 ? "none" : waitingFor);
    StringBuilder out = new StringBuilder(256);
    String head = "communicator rank=%d of %d, failure=%s%n  kernels last waited long for %s%n";
    out.append(
        Text.of(head, bootstrap.rank(), bootstrap.nRanks(), communicator.failure(), awaited));
    bootstrap
        .unresponsiveRank()
        .ifPresent(rank -> out.append(Text.of("  rank %d answers no heartbeat%n", rank)));
    lines(true).forEach(each -> out.append(Text.of("  %s%n", each)));
    return out.toString();
  }

  /**
   * Returns the set-ups in flight and the connections, a line each.
   *
   * @param all whether with the connections that work, and the kinds of errors
   */
  private List<String> lines(boolean all) {
    List<String> lines = new ArrayList<>(setups.lines());
    for (Connection each : connections.get()) {
      FluxCclException trouble = each.failure() == null ? each.interruption() : each.failure();
      if (all || trouble != null) {
        Object state = trouble == null ? "works" : trouble;
        lines.add(
            Text.of(
                "connection to rank %d tag %d over %s: %s",
                each.remoteRank(),
                each.tag(),
                each.transport(),
                all ? state : trouble.getMessage()));
      }
    }
    return lines;
  }

  private Snapshot snapshot() {
    FluxCclException failure = communicator.failure();
    Snapshot group =
        Snapshot.EMPTY
            .with("id", bootstrap.groupId())
            .with("group", bootstrap.name())
            .with("members", bootstrap.jobRanks())
            .with("failure", failure == null ? "" : String.valueOf(failure.getMessage()))
            .with("kernels_waited_for", communicator.abortFlag().waitingFor())
            .with("setups", lines(false));
    return recorder.addTo(group);
  }

  /** Writes the calls of this rank. Called once, on a thread that may block. */
  void failed(FluxCclException reason) {
    if (communicator.isClosed()) {
      return;
    }
    RankLog.line(bootstrap.rank(), () -> write(reason));
  }

  private void write(FluxCclException reason) {
    FlightEvents.failure(bootstrap.rank(), reason);
    DumpFile dump = new DumpFile(bootstrap.rank(), bootstrap.nRanks(), snapshot(), reason);
    LOG.debug("{}", dump.summary());
    dump.write(System.getenv(DumpFile.VARIABLE))
        .ifPresent(path -> LOG.info("the calls of this rank are in {}", path));
  }

  /** Removes this communicator from the rank's snapshots. */
  @Override
  public void close() {
    endOfReports.run();
  }
}

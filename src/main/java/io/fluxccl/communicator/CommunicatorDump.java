// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.communicator;

import io.fluxccl.FluxCclException;
import io.fluxccl.Text;
import io.fluxccl.bootstrap.Bootstrap;
import io.fluxccl.concurrent.RankLog;
import io.fluxccl.trace.DumpFile;
import io.fluxccl.trace.FlightEvents;
import io.fluxccl.trace.FlightRecorder;
import io.fluxccl.trace.GroupReport;
import io.fluxccl.transport.Connection;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.function.Supplier;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Describes a communicator: the text of {@link Communicator#dump()}, its part of this rank's
 * report, and the output of its failure. Thread-safe; takes no lock that is held while user code
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
    this.endOfReports = bootstrap.report(this::report);
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
    setups.dump(out);
    for (Connection each : connections.get()) {
      FluxCclException trouble = troubleOf(each);
      out.append(Text.of("  %s: %s%n", describe(each), trouble == null ? "works" : trouble));
    }
    return out.toString();
  }

  private static FluxCclException troubleOf(Connection connection) {
    return connection.failure() == null ? connection.interruption() : connection.failure();
  }

  private static String describe(Connection connection) {
    return Text.of(
        "connection to rank %d tag %d over %s",
        connection.remoteRank(), connection.tag(), connection.transport());
  }

  private GroupReport report() {
    StringBuilder waits = new StringBuilder();
    setups.dump(waits);
    List<String> lines = new ArrayList<>(waits.toString().lines().map(String::strip).toList());
    for (Connection each : connections.get()) {
      FluxCclException trouble = troubleOf(each);
      if (trouble != null) {
        lines.add(describe(each) + ": " + trouble.getMessage());
      }
    }
    FluxCclException failure = communicator.failure();
    return new GroupReport(
        bootstrap.groupId(),
        bootstrap.name(),
        bootstrap.jobRanks(),
        failure == null ? "" : String.valueOf(failure.getMessage()),
        communicator.abortFlag().waitingFor(),
        lines,
        recorder.lanes(),
        recorder.calls());
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
    DumpFile dump = new DumpFile(bootstrap.rank(), bootstrap.nRanks(), report(), reason);
    LOG.debug("{}", dump.summary());
    dump.write().ifPresent(path -> LOG.info("the calls of this rank are in {}", path));
  }

  /** Removes this communicator from the rank's reports. */
  @Override
  public void close() {
    endOfReports.run();
  }
}

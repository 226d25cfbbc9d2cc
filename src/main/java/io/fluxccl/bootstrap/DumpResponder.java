// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.Timeout;
import io.fluxccl.bootstrap.BootstrapFrame.DumpReply;
import io.fluxccl.concurrent.RankLog;
import io.fluxccl.trace.GroupReport;
import io.fluxccl.trace.JobDump;
import io.fluxccl.trace.RankReport;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Function;
import java.util.function.Supplier;
import java.util.stream.Collectors;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** The report with which one rank answers dump requests: a part for each of its communicators. */
final class DumpResponder {
  private static final Logger LOG = LoggerFactory.getLogger(DumpResponder.class);
  private static final String HOST = HostIdentity.hostName();
  // Longer than a busy machine delays a thread.
  private static final long GRACE_MILLIS = 5000;
  private static final int MOST_BYTES = BootstrapFrameCodec.CONTROL_LIMIT - 64;

  private final AbstractBootstrap bootstrap;
  private final List<Supplier<GroupReport>> parts = new CopyOnWriteArrayList<>();

  DumpResponder(AbstractBootstrap bootstrap) {
    this.bootstrap = bootstrap;
  }

  /** {@link Bootstrap#report}. */
  Runnable add(Supplier<GroupReport> part) {
    parts.add(part);
    return () -> parts.remove(part);
  }

  /** {@link Bootstrap#dump}. */
  CompletableFuture<JobDump> dump(boolean all, Duration limit) {
    PeerLinks links = bootstrap instanceof TcpBootstrap tcp ? tcp.links : null;
    if (links == null || links.jobKey() == null) {
      return CompletableFuture.failedFuture(
          InvalidUsage.of("dump: %s has not joined its job", bootstrap.describe()));
    }
    CompletableFuture<JobDump> asked =
        CompletableFuture.supplyAsync(
                () -> links.requestDump(all, limit), bootstrap.operations::onLoop)
            .thenCompose(Function.identity());
    // The bootstrap's thread keeps the limit itself, unless it has ended or is stuck.
    return asked
        .orTimeout(limit.toMillis() + GRACE_MILLIS, TimeUnit.MILLISECONDS)
        .exceptionallyCompose(failure -> CompletableFuture.failedFuture(typed(failure, limit)));
  }

  private FluxCclException typed(Throwable failure, Duration limit) {
    return failure instanceof TimeoutException
        ? Timeout.of(
            bootstrap.rank(),
            "%s: dump: the bootstrap's thread has not answered %s ms after the limit of %s ms",
            bootstrap.describe(),
            GRACE_MILLIS,
            limit.toMillis())
        : FluxCclException.from(failure);
  }

  /** Returns the report of this rank as it is now. On the event loop. */
  RankReport make() {
    List<GroupReport> groups = parts.stream().map(Supplier::get).toList();
    return new RankReport(
        bootstrap.name(),
        bootstrap.rank(),
        bootstrap.nRanks(),
        ProcessHandle.current().pid(),
        HOST,
        System.nanoTime(),
        bootstrap.silentNanos(),
        groups);
  }

  /**
   * Logs that the job has failed: why, and in which calls of this rank. The only warning of a
   * failure. On the event loop.
   */
  void logFailure(FluxCclException reason) {
    String calls =
        parts.stream()
            .map(part -> part.get().callsInFlight())
            .filter(text -> !text.isEmpty())
            .collect(Collectors.joining(", "));
    String place = calls.isEmpty() ? "" : "; " + bootstrap.describe() + " was in " + calls;
    RankLog.line(
        bootstrap.rank(),
        () -> {
          LOG.warn("{}{}", reason.getMessage(), place);
          LOG.debug("{}: the job has failed", bootstrap.describe(), reason);
        });
  }

  /** Returns the answer to a dump request; without all calls if it would be too long. */
  DumpReply answer(boolean all) {
    RankReport report = make();
    byte[] content = report.encode(all);
    boolean fits = content.length < MOST_BYTES;
    return new DumpReply(fits ? content : report.encode(false));
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.Timeout;
import io.fluxccl.bootstrap.BootstrapFrame.DumpReply;
import io.fluxccl.concurrent.RankLog;
import io.fluxccl.trace.CallRecord;
import io.fluxccl.trace.JobDump;
import io.fluxccl.trace.Snapshot;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Function;
import java.util.function.Supplier;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Answers dump requests with the snapshot of one rank: a part for each of its communicators. */
final class DumpResponder {
  private static final Logger LOG = LoggerFactory.getLogger(DumpResponder.class);
  private static final String HOST = HostIdentity.hostName();
  // Longer than a busy machine delays a thread.
  private static final long GRACE_MILLIS = 5000;
  private static final int MOST_BYTES = BootstrapFrameCodec.CONTROL_LIMIT - 64;

  private final AbstractBootstrap bootstrap;
  private final List<Supplier<Snapshot>> parts = new CopyOnWriteArrayList<>();

  DumpResponder(AbstractBootstrap bootstrap) {
    this.bootstrap = bootstrap;
  }

  /** {@link Bootstrap#report}. */
  Runnable add(Supplier<Snapshot> part) {
    parts.add(part);
    return () -> parts.remove(part);
  }

  /** {@link Bootstrap#dump}. */
  CompletableFuture<JobDump> dump(boolean all, Duration limit) {
    TcpBootstrap job = bootstrap instanceof TcpBootstrap tcp ? tcp : null;
    if (job == null || job.generation() == 0) {
      return CompletableFuture.failedFuture(
          InvalidUsage.of("dump: %s has not joined its job", bootstrap.describe()));
    }
    String late =
        "%s: dump: the bootstrap's thread has not answered %s ms after the limit of %s ms";
    return CompletableFuture.supplyAsync(
            () -> job.requestDump(all, limit), bootstrap.operations::onLoop)
        .thenCompose(Function.identity())
        // The bootstrap's thread keeps the limit itself, unless it has ended or is stuck.
        .orTimeout(limit.toMillis() + GRACE_MILLIS, TimeUnit.MILLISECONDS)
        .exceptionallyCompose(
            failure ->
                CompletableFuture.failedFuture(
                    failure instanceof TimeoutException
                        ? Timeout.of(
                            bootstrap.rank(),
                            late,
                            bootstrap.describe(),
                            GRACE_MILLIS,
                            limit.toMillis())
                        : FluxCclException.from(failure)));
  }

  /**
   * Returns the snapshot of this rank. On the event loop.
   *
   * @param all whether with all calls that are kept
   */
  Snapshot make(boolean all) {
    List<Snapshot> silent =
        bootstrap.silentNanos().entrySet().stream()
            .map(
                each ->
                    Snapshot.EMPTY.with("rank", each.getKey()).with("silent_ns", each.getValue()))
            .toList();
    Stream<Snapshot> groups = parts.stream().map(Supplier::get);
    return Snapshot.EMPTY
        .with("job", bootstrap.name())
        .with("process", ProcessHandle.current().pid())
        .with("host", HOST)
        .with("silent", silent)
        .with("groups", groups.map(group -> all ? group : CallRecord.withFewCalls(group)).toList())
        .with("now_ns", System.nanoTime());
  }

  /**
   * Logs that the job has failed: why, and in which calls of this rank. The only warning of a
   * failure. On the event loop.
   */
  void logFailure(FluxCclException reason) {
    String calls =
        parts.stream()
            .map(part -> CallRecord.callsInFlight(part.get()))
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
    byte[] content = make(all).encode();
    return new DumpReply(content.length < MOST_BYTES ? content : make(false).encode());
  }
}

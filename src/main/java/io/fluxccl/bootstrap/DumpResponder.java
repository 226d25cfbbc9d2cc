// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.FluxCclException;
import io.fluxccl.bootstrap.BootstrapFrame.DumpReply;
import io.fluxccl.concurrent.RankLog;
import io.fluxccl.trace.CallRecord;
import io.fluxccl.trace.Snapshot;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.function.Supplier;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Answers dump requests with the snapshot of one rank: a part for each of its communicators. */
final class DumpResponder {
  private static final Logger LOG = LoggerFactory.getLogger(DumpResponder.class);
  private static final String HOST = HostIdentity.hostName();
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

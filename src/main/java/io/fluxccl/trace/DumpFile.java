// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.trace;

import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.LocalFiles;
import io.fluxccl.Text;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Locale;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Collectors;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Describes the calls of a rank whose communicator has failed: in a line for the log and, if
 * {@value #VARIABLE} names a folder, in a file with all kept calls.
 *
 * @param rank this rank
 * @param nRanks how many there are
 * @param report of the communicator that has failed
 * @param reason why
 */
public record DumpFile(int rank, int nRanks, GroupReport report, FluxCclException reason) {
  /** The environment variable that names the folder of the files. */
  public static final String VARIABLE = "FLUXCCL_DUMP_DIR";

  private static final Logger LOG = LoggerFactory.getLogger(DumpFile.class);
  private static final AtomicInteger FILES = new AtomicInteger();
  private static final int SHOWN = 4;

  /** Returns what this rank was doing, in one line. */
  public String summary() {
    // Calls in flight have failed with the communicator, or are about to.
    List<CallRecord> open =
        report.calls().stream()
            .filter(call -> call.isInFlight() || call.outcome() == Outcome.FAILED)
            .toList();
    List<CallRecord> last = open.isEmpty() ? newest() : open;
    String calls =
        last.stream().limit(SHOWN).map(DumpText::describe).collect(Collectors.joining(", "));
    String more = last.size() > SHOWN ? Text.of(" and %d more", last.size() - SHOWN) : "";
    return Text.of(
        "rank %d of %d failed (%s) %s",
        rank,
        nRanks,
        reason.code().name().toLowerCase(Locale.ROOT),
        last.isEmpty()
            ? "before its first call"
            : open.isEmpty() ? "after " + calls : "in " + calls + more);
  }

  private List<CallRecord> newest() {
    List<CallRecord> calls = report.calls();
    return calls.subList(Math.max(0, calls.size() - 1), calls.size());
  }

  /** Writes the file, if a folder is named; returns its path if it could be written. */
  public Optional<Path> write() {
    return write(System.getenv(VARIABLE));
  }

  Optional<Path> write(String folder) {
    if (folder == null || folder.isBlank()) {
      return Optional.empty();
    }
    String name =
        Text.of(
            "fluxccl-rank%d-%d-%d.txt",
            rank, ProcessHandle.current().pid(), FILES.incrementAndGet());
    try {
      Path path = LocalFiles.requireOwnLinks(LocalFiles.path(VARIABLE, folder.strip()));
      if (!Files.isDirectory(path)) {
        Files.createDirectories(path);
      }
      Path file = path.resolve(name);
      LocalFiles.replace(file, text().getBytes(StandardCharsets.UTF_8));
      return Optional.of(file);
    } catch (IOException | InvalidUsage e) {
      LOG.warn(
          "the calls of rank {} can't be written to {}={}: {}",
          rank,
          VARIABLE,
          folder,
          e.toString());
      return Optional.empty();
    }
  }

  private String text() {
    long now = System.nanoTime();
    StringBuilder out = new StringBuilder(4096);
    out.append(summary()).append('\n').append(reason.getMessage()).append('\n');
    report.setups().forEach(each -> out.append(each).append('\n'));
    out.append("lane sequence call outcome enqueued_ms_ago begun_ms_ago ended_ms_ago\n");
    for (CallRecord call : report.calls()) {
      out.append(
          Text.of(
              "%d %d %s %s %s %s %s%n",
              call.lane(),
              call.sequence(),
              DumpText.describe(call).replace(' ', '_'),
              call.outcome(),
              ago(now, call.enqueuedNs()),
              ago(now, call.begunNs()),
              ago(now, call.endedNs())));
    }
    return out.toString();
  }

  private static String ago(long now, long atNs) {
    return atNs == 0 ? "-" : Text.of("%.3f", (now - atNs) / 1e6);
  }
}

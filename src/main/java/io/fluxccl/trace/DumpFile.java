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
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Describes the calls of a rank whose communicator has failed: in a line for the log and, if
 * {@value #VARIABLE} names a folder, in a file with all kept calls.
 *
 * @param rank this rank
 * @param nRanks how many there are
 * @param group the snapshot of the communicator that has failed
 * @param reason why
 */
public record DumpFile(int rank, int nRanks, Snapshot group, FluxCclException reason) {
  /** The environment variable that names the folder of the files. */
  public static final String VARIABLE = "FLUXCCL_DUMP_DIR";

  private static final Logger LOG = LoggerFactory.getLogger(DumpFile.class);
  private static final AtomicInteger FILES = new AtomicInteger();

  /** Returns what this rank was doing, in one line. */
  public String summary() {
    List<Snapshot> calls = group.trees("calls");
    // Calls in flight have failed with the communicator, or are about to.
    List<Snapshot> open =
        calls.stream()
            .filter(call -> CallRecord.isInFlight(call) || call.text("outcome").equals("failed"))
            .toList();
    String place = "before its first call";
    if (!open.isEmpty()) {
      place = "in " + CallRecord.describe(open);
    } else if (!calls.isEmpty()) {
      place = "after " + CallRecord.describe(calls.get(calls.size() - 1));
    }
    String code = reason.code().name().toLowerCase(Locale.ROOT);
    return Text.of("rank %d of %d failed (%s) %s", rank, nRanks, code, place);
  }

  /**
   * Writes the file.
   *
   * @param folder the value of {@value #VARIABLE}, or null
   * @return its path if a folder is named and it could be written
   */
  public Optional<Path> write(String folder) {
    if (folder == null || folder.isBlank()) {
      return Optional.empty();
    }
    long process = ProcessHandle.current().pid();
    String name = Text.of("fluxccl-rank%d-%d-%d.txt", rank, process, FILES.incrementAndGet());
    try {
      Path path = LocalFiles.requireOwnLinks(LocalFiles.path(VARIABLE, folder.strip()));
      if (!Files.isDirectory(path)) {
        Files.createDirectories(path);
      }
      Path file = path.resolve(name);
      LocalFiles.replace(file, text().getBytes(StandardCharsets.UTF_8));
      return Optional.of(file);
    } catch (IOException | InvalidUsage e) {
      String warning = "the calls of rank {} can't be written to {}={}: {}";
      LOG.warn(warning, rank, VARIABLE, folder, e.toString());
      return Optional.empty();
    }
  }

  private String text() {
    StringBuilder out = new StringBuilder(4096);
    out.append(summary()).append('\n').append(reason.getMessage()).append('\n');
    group.texts("setups").forEach(each -> out.append(each).append('\n'));
    out.append("lane sequence call outcome enqueued_ms_ago begun_ms_ago ended_ms_ago\n");
    for (Snapshot call : group.trees("calls")) {
      long enqueued = call.number("enqueued_ns_ago");
      out.append(
          Text.of(
              "%d %d %s %s %s %s %s%n",
              call.number("lane"),
              call.number("sequence"),
              CallRecord.describe(call).replace(' ', '_'),
              call.text("outcome").toUpperCase(Locale.ROOT),
              ms(enqueued),
              call.has("waited_ns") ? ms(enqueued - call.number("waited_ns")) : "-",
              call.has("time_ns") ? ms(enqueued - call.number("time_ns")) : "-"));
    }
    return out.toString();
  }

  private static String ms(long nanos) {
    return Text.of("%.3f", nanos / 1e6);
  }
}

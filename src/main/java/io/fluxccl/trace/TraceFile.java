// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.trace;

import io.fluxccl.Text;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;

/**
 * Writes the calls of jobs in Chrome's trace event format, which ui.perfetto.dev shows. Each rank
 * is a process, each of its lanes a track, each call a span. Lanes with known device times have a
 * second track. The times of all ranks are those of the process that asked, by the clock offset of
 * each rank's answer.
 */
public final class TraceFile {
  private static final double NANOS_PER_MICRO = 1e3;

  private final StringBuilder out = new StringBuilder(1 << 16);

  /** The lanes that are named. */
  private final Map<String, Integer> tracks = new TreeMap<>();

  private TraceFile() {}

  /** Returns the file's text. */
  public static String of(List<JobDump> dumps) {
    TraceFile file = new TraceFile();
    file.out.append("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[");
    for (int job = 0; job < dumps.size(); job++) {
      for (RankAnswer answer : dumps.get(job).ranks()) {
        if (answer.report().isPresent()) {
          file.write(job * dumps.get(job).nRanks() + answer.rank(), answer);
        }
      }
    }
    return file.out.append("\n]}\n").toString();
  }

  private void write(int process, RankAnswer answer) {
    RankReport report = answer.report().orElseThrow();
    name("process_name", process, 0, ("rank " + answer.rank() + " " + report.job()).strip());
    event(
        "\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":%d,\"args\":{\"sort_index\":%d}",
        process, answer.rank());
    for (GroupReport group : report.groups()) {
      int least = group.calls().stream().mapToInt(CallRecord::lane).min().orElse(0);
      for (CallRecord call : group.calls()) {
        String number = "lane " + (call.lane() - least);
        String lane = group.group() == 0 ? number : group.name() + " " + number;
        int track = track(process, lane);
        span(process, track, answer.offsetNs(), report.nowNs(), call);
        if (call.deviceEndedNs() != 0) {
          span(process, track(process, lane + " on the device"), answer.offsetNs(), call);
        }
      }
    }
  }

  private int track(int process, String name) {
    String key = process + " " + name;
    Integer known = tracks.get(key);
    if (known == null) {
      known = tracks.size() + 1;
      tracks.put(key, known);
      name("thread_name", process, known, name);
    }
    return known;
  }

  private void name(String what, int process, int track, String name) {
    event(
        "\"ph\":\"M\",\"name\":\"%s\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":%s}",
        what, process, track, quoted(name));
  }

  /** Writes a call from when it could begin to its end, or to the time of the report. */
  private void span(int process, int track, long offsetNs, long nowNs, CallRecord call) {
    long begun = Math.max(call.enqueuedNs(), call.begunNs());
    long ended = call.isInFlight() ? nowNs : call.endedNs();
    event(
        "\"ph\":\"X\",\"name\":%s,\"cat\":%s,\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,"
            + "\"args\":{\"bytes\":%d,\"type\":%s,\"algorithm\":%s,\"outcome\":%s,"
            + "\"waited_on_stream_us\":%.3f}",
        quoted(call.label()),
        quoted(call.kind()),
        process,
        track,
        (begun - offsetNs) / NANOS_PER_MICRO,
        Math.max(0, ended - begun) / NANOS_PER_MICRO,
        call.bytes(),
        quoted(call.type()),
        quoted(call.algorithm()),
        quoted(call.outcome().name().toLowerCase(Locale.ROOT)),
        (begun - call.enqueuedNs()) / NANOS_PER_MICRO);
  }

  /** Writes when the device ran a call. */
  private void span(int process, int track, long offsetNs, CallRecord call) {
    event(
        "\"ph\":\"X\",\"name\":%s,\"cat\":%s,\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f",
        quoted(call.label()),
        quoted(call.kind()),
        process,
        track,
        (call.deviceBegunNs() - offsetNs) / NANOS_PER_MICRO,
        (call.deviceEndedNs() - call.deviceBegunNs()) / NANOS_PER_MICRO);
  }

  private void event(String format, Object... values) {
    out.append(out.charAt(out.length() - 1) == '[' ? "\n{" : ",\n{");
    out.append(Text.of(format, values)).append('}');
  }

  private static String quoted(String text) {
    StringBuilder quoted = new StringBuilder("\"");
    for (char c : text.toCharArray()) {
      if (c == '"' || c == '\\') {
        quoted.append('\\').append(c);
      } else if (c < ' ') {
        quoted.append(' ');
      } else {
        quoted.append(c);
      }
    }
    return quoted.append('"').toString();
  }
}

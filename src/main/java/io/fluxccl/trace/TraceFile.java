// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.trace;

import java.math.BigDecimal;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * Writes the calls of jobs in Chrome's trace event format, which ui.perfetto.dev shows. Each rank
 * is a process, each of its lanes a track, each call a span. Lanes with known device times have a
 * second track. The times of all ranks are those of the process that asked, by the clock offset of
 * each rank's answer.
 */
public final class TraceFile {
  private final List<Snapshot> events = new ArrayList<>();

  /** The lanes that are named. */
  private final Map<String, Integer> tracks = new LinkedHashMap<>();

  private TraceFile() {}

  /** Returns the file's text. */
  public static String of(List<JobDump> dumps) {
    TraceFile file = new TraceFile();
    for (int job = 0; job < dumps.size(); job++) {
      for (Snapshot answer : dumps.get(job).ranks()) {
        if (JobDump.answers(answer)) {
          file.write(job * dumps.get(job).nRanks() + JobDump.rankOf(answer), answer);
        }
      }
    }
    return Snapshot.EMPTY
        .with("displayTimeUnit", "ns")
        .with("traceEvents", file.events)
        .json(Set.of());
  }

  private void write(int process, Snapshot answer) {
    String name = ("rank " + answer.number("rank") + " " + answer.text("job")).strip();
    name("process_name", process, 0, Snapshot.EMPTY.with("name", name));
    Snapshot index = Snapshot.EMPTY.with("sort_index", answer.number("rank"));
    name("process_sort_index", process, 0, index);
    for (Snapshot group : answer.trees("groups")) {
      List<Snapshot> calls = group.trees("calls");
      long least = calls.stream().mapToLong(call -> call.number("lane")).min().orElse(0);
      String prefix = group.number("id") == 0 ? "lane " : group.text("group") + " lane ";
      long now = group.number("now_ns") - answer.number("clock_offset_ns");
      for (Snapshot call : calls) {
        write(process, prefix + (call.number("lane") - least), now, call);
      }
    }
  }

  /**
   * Writes a call from when it could begin to its end, or to the time of the snapshot; and when the
   * device ran it, if that is known.
   */
  private void write(int process, String lane, long now, Snapshot call) {
    long waited = call.number("waited_ns");
    long begun = now - call.number("enqueued_ns_ago") + waited;
    long worked = Math.max(0, CallRecord.workedNs(call));
    Snapshot details =
        Snapshot.EMPTY
            .with("bytes", call.number("bytes"))
            .with("type", call.text("type"))
            .with("algorithm", call.text("algorithm"))
            .with("outcome", call.text("outcome"))
            .with("waited_on_stream_us", micros(waited));
    events.add(span(process, lane, call, begun, worked).with("args", details));
    if (call.has("device_time_ns")) {
      long deviceBegun = now - call.number("device_begun_ns_ago");
      long ran = call.number("device_time_ns");
      events.add(span(process, lane + " on the device", call, deviceBegun, ran));
    }
  }

  private Snapshot span(int process, String lane, Snapshot call, long begun, long time) {
    String label = CallRecord.label(call);
    return event("X", label, process, track(process, lane))
        .with("cat", call.text("kind"))
        .with("ts", micros(begun))
        .with("dur", micros(time));
  }

  private int track(int process, String name) {
    String key = process + " " + name;
    if (!tracks.containsKey(key)) {
      tracks.put(key, tracks.size() + 1);
      name("thread_name", process, tracks.size(), Snapshot.EMPTY.with("name", name));
    }
    return tracks.get(key);
  }

  private void name(String what, int process, int track, Snapshot arguments) {
    events.add(event("M", what, process, track).with("args", arguments));
  }

  private static Snapshot event(String phase, String name, int process, int track) {
    Snapshot event = Snapshot.EMPTY.with("ph", phase).with("name", name);
    return event.with("pid", process).with("tid", track);
  }

  private static BigDecimal micros(long nanos) {
    return BigDecimal.valueOf(nanos, 3);
  }
}

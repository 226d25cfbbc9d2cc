// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import io.fluxccl.trace.CallRecord;
import io.fluxccl.trace.GroupReport;
import io.fluxccl.trace.JobDump;
import io.fluxccl.trace.LaneReport;
import io.fluxccl.trace.LaneWait;
import io.fluxccl.trace.RankAnswer;
import io.fluxccl.trace.RankReport;
import java.io.IOException;
import java.io.StringWriter;
import java.util.List;
import java.util.Locale;

/** Writes a {@link JobDump} as JSON. Times are seconds. */
final class DumpJson {
  private static final double NANOS = 1e9;

  private final JsonGenerator json;

  private DumpJson(JsonGenerator json) {
    this.json = json;
  }

  static String of(JobDump dump) throws IOException {
    StringWriter text = new StringWriter();
    try (JsonGenerator json = new JsonFactory().createGenerator(text).useDefaultPrettyPrinter()) {
      new DumpJson(json).write(dump);
    }
    return text.toString();
  }

  private void write(JobDump dump) throws IOException {
    json.writeStartObject();
    json.writeStringField("job", dump.job());
    json.writeNumberField("ranks", dump.nRanks());
    json.writeStringField("verdict", dump.verdict());
    write("blamed", dump.blamed());
    write("silent", dump.silent());
    json.writeArrayFieldStart("waits");
    for (LaneWait wait : dump.waits()) {
      write(wait);
    }
    json.writeEndArray();
    json.writeArrayFieldStart("answers");
    for (RankAnswer answer : dump.ranks()) {
      write(dump, answer);
    }
    json.writeEndArray();
    json.writeEndObject();
  }

  private void write(String name, List<Integer> ranks) throws IOException {
    json.writeFieldName(name);
    json.writeArray(ranks.stream().mapToInt(Integer::intValue).toArray(), 0, ranks.size());
  }

  private void write(LaneWait wait) throws IOException {
    json.writeStartObject();
    json.writeStringField("group", wait.groupName());
    json.writeNumberField("lane", wait.lane());
    json.writeStringField("call", wait.call().label());
    json.writeNumberField("since_s", wait.sinceNs() / NANOS);
    json.writeBooleanField("long", wait.isLong());
    write("waiting", wait.waiting());
    write("not_begun", wait.behind());
    write("silent", wait.silent());
    write("completed", wait.others());
    write("blamed", wait.blamed());
    json.writeEndObject();
  }

  private void write(JobDump dump, RankAnswer answer) throws IOException {
    json.writeStartObject();
    json.writeNumberField("rank", answer.rank());
    json.writeBooleanField("answers", answer.answers());
    Long silentNs = dump.silentNs().get(answer.rank());
    if (silentNs != null) {
      json.writeNumberField("silent_s", silentNs / NANOS);
    }
    if (answer.report().isEmpty()) {
      json.writeStringField("problem", answer.problem());
    } else {
      RankReport report = answer.report().get();
      json.writeNumberField("process", report.process());
      json.writeStringField("host", report.host());
      json.writeNumberField("clock_offset_s", answer.offsetNs() / NANOS);
      json.writeArrayFieldStart("groups");
      for (GroupReport group : report.groups()) {
        write(report, group);
      }
      json.writeEndArray();
    }
    json.writeEndObject();
  }

  private void write(RankReport report, GroupReport group) throws IOException {
    json.writeStartObject();
    json.writeStringField("group", group.name());
    json.writeStringField("failure", group.failure());
    json.writeNumberField("kernels_waited_for", group.waitsFor());
    json.writeFieldName("setups");
    json.writeArray(group.setups().toArray(String[]::new), 0, group.setups().size());
    json.writeArrayFieldStart("lanes");
    for (LaneReport lane : group.lanes()) {
      json.writeStartObject();
      json.writeNumberField("tag", lane.tag());
      json.writeNumberField("enqueued", lane.enqueued());
      json.writeNumberField("done", lane.done());
      json.writeNumberField("in_flight", lane.inFlight());
      json.writeEndObject();
    }
    json.writeEndArray();
    json.writeArrayFieldStart("calls");
    for (CallRecord call : group.calls()) {
      write(report, call);
    }
    json.writeEndArray();
    json.writeEndObject();
  }

  private void write(RankReport report, CallRecord call) throws IOException {
    json.writeStartObject();
    json.writeNumberField("lane", call.lane());
    json.writeNumberField("first", call.first());
    json.writeNumberField("last", call.last());
    json.writeStringField("kind", call.kind());
    json.writeStringField("type", call.type());
    json.writeStringField("algorithm", call.algorithm());
    json.writeNumberField("bytes", call.bytes());
    json.writeStringField("outcome", call.outcome().name().toLowerCase(Locale.ROOT));
    json.writeNumberField("enqueued_s_ago", (report.nowNs() - call.enqueuedNs()) / NANOS);
    if (call.endedNs() != 0) {
      json.writeNumberField("time_s", (call.endedNs() - call.enqueuedNs()) / NANOS);
    }
    if (call.deviceEndedNs() != 0) {
      json.writeNumberField("device_time_s", (call.deviceEndedNs() - call.deviceBegunNs()) / NANOS);
    }
    json.writeEndObject();
  }
}

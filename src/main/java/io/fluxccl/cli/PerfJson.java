// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import java.io.IOException;
import java.io.StringWriter;
import java.io.UncheckedIOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.OptionalDouble;
import java.util.OptionalLong;

/** The rows as a JSON array in a file, which is complete after each row. */
final class PerfJson {
  private final ResultFile file;
  private final List<PerfRow> rows = new ArrayList<>();
  private String peer = "";

  /**
   * Writes an empty array.
   *
   * @param path of the file
   * @throws io.fluxccl.InvalidUsage if it can't be written
   */
  PerfJson(Path path) {
    this.file = new ResultFile("json", path);
    file.requireWritable();
    write();
  }

  /**
   * Adds a row.
   *
   * @param peerName of the library that it is compared with; empty if there is none
   */
  void add(PerfRow row, String peerName) {
    peer = peerName;
    rows.add(row);
    write();
  }

  private void write() {
    StringWriter text = new StringWriter();
    try (JsonGenerator json = new JsonFactory().createGenerator(text).useDefaultPrettyPrinter()) {
      json.writeStartArray();
      for (PerfRow row : rows) {
        write(json, row);
      }
      json.writeEndArray();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
    file.write(text.toString());
  }

  private void write(JsonGenerator json, PerfRow row) throws IOException {
    PerfCase shape = row.measured();
    json.writeStartObject();
    json.writeStringField("op", shape.collective().label());
    json.writeNumberField("ranks", row.nRanks());
    json.writeNumberField("bytes", row.bytes());
    json.writeNumberField("count", shape.count());
    json.writeStringField("dtype", shape.type().label());
    json.writeStringField("redop", shape.opLabel());
    json.writeNumberField("root", shape.rootOrNone());
    if (row.peerMicros().isPresent()) {
      json.writeStringField("peer", peer);
    }
    writeTimes(json, row, row.micros(), row.peerMicros(), row.wrong());
    for (Map.Entry<BufferAliasing, PerfRow.Measurement> each : row.byPlacement().entrySet()) {
      PerfRow.Measurement part = each.getValue();
      json.writeObjectFieldStart(each.getKey().name().toLowerCase(Locale.ROOT));
      json.writeStringField("algorithm", part.algorithm());
      writeTimes(json, row, part.micros(), part.peerMicros(), part.wrong());
      json.writeEndObject();
    }
    json.writeEndObject();
  }

  private static void writeTimes(
      JsonGenerator json, PerfRow row, double micros, OptionalDouble peerMicros, OptionalLong wrong)
      throws IOException {
    json.writeNumberField("time_us", micros);
    json.writeNumberField("algbw_gbs", row.algorithmBandwidth(micros));
    json.writeNumberField("busbw_gbs", row.busBandwidth(micros));
    if (peerMicros.isPresent()) {
      json.writeNumberField("peer_time_us", peerMicros.getAsDouble());
      json.writeNumberField("ratio", micros / peerMicros.getAsDouble());
    }
    json.writeFieldName("wrong");
    json.writeRawValue(wrong.isPresent() ? Long.toString(wrong.getAsLong()) : "null");
  }
}

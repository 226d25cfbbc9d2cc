package io.fluxccl.cli;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.core.util.DefaultPrettyPrinter;
import io.fluxccl.InvalidUsage;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.OptionalDouble;
import java.util.OptionalLong;

/**
 * The rows as a JSON array in a file. After each row a complete file takes the place of the one
 * before, so that whatever ends the run leaves the rows that were measured, as valid JSON.
 */
final class PerfJson implements PerfListener {
  private final Path file;
  private final Path next;
  private final List<PerfRow> rows = new ArrayList<>();

  /**
   * Writes an empty array at once: better to learn here than after an hour that the file can't be
   * written.
   *
   * @param file where
   * @throws InvalidUsage if it can't be written
   */
  PerfJson(Path file) {
    if (Files.exists(file) && !Files.isRegularFile(file)) {
      throw new InvalidUsage("json=" + file + " is no regular file");
    }
    this.file = file;
    this.next = file.resolveSibling("." + file.getFileName() + "." + ProcessHandle.current().pid());
    write();
  }

  @Override
  public void measured(PerfRow row) {
    rows.add(row);
    write();
  }

  private void write() {
    try {
      try (JsonGenerator json = new JsonFactory().createGenerator(Files.newBufferedWriter(next))) {
        json.setPrettyPrinter(new DefaultPrettyPrinter());
        json.writeStartArray();
        for (PerfRow row : rows) {
          write(json, row);
        }
        json.writeEndArray();
      }
      Files.move(next, file, StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING);
    } catch (IOException e) {
      throw new InvalidUsage("json=" + file + " can't be written: " + e, e);
    }
  }

  private static void write(JsonGenerator json, PerfRow row) throws IOException {
    json.writeStartObject();
    PerfCase shape = row.measured();
    json.writeStringField("op", shape.collective().label());
    json.writeNumberField("ranks", row.nRanks());
    json.writeNumberField("bytes", row.bytes());
    json.writeNumberField("count", shape.count());
    json.writeStringField("dtype", shape.type().label());
    json.writeStringField("redop", shape.op() == null ? "none" : shape.op().label());
    json.writeNumberField("root", shape.collective().hasRoot() ? shape.root() : -1);
    writeTimes(json, row, row.micros(), row.peerMicros(), row.wrong());
    for (Placement placement : Placement.values()) {
      if (row.in(placement).isPresent()) {
        PerfRow.Measurement part = row.in(placement).get();
        json.writeObjectFieldStart(placement.name().toLowerCase(Locale.ROOT));
        json.writeStringField("algorithm", part.algorithm());
        writeTimes(json, row, part.micros(), part.peerMicros(), part.wrong());
        json.writeEndObject();
      }
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
    if (wrong.isPresent()) {
      json.writeNumberField("wrong", wrong.getAsLong());
    } else {
      json.writeNullField("wrong");
    }
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.benchmarks;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import io.fluxccl.Text;
import java.io.IOException;
import java.io.StringWriter;
import java.io.UncheckedIOException;
import java.math.BigDecimal;
import java.math.MathContext;
import java.math.RoundingMode;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;

/**
 * A measured row: one line of {@code benchmarks/data/AREA.jsonl}. The fields are:
 *
 * <ul>
 *   <li>{@code id}: the same for the same measurement at any time; {@code what} was measured
 *   <li>{@code series} and {@code at}: rows of one series stand in one line of a page
 *   <li>{@code ours}, {@code peer}: a number, or a text with several; {@code unit}; {@code
 *       against}, the peer's name; {@code ratio}, ours over the peer's
 *   <li>{@code goal}, such as {@code ratio <= 0.38} or {@code ours >= 0.52}; {@code cited}, the
 *       page that cites the row
 *   <li>{@code samples}, {@code machine}, {@code commit}, {@code date}, {@code command}, {@code
 *       note}
 *   <li>{@code kind}: {@code note} for a remark on several rows
 * </ul>
 *
 * @param fields by name: text or {@link BigDecimal}
 */
public record Row(Map<String, Object> fields) {
  private static final JsonFactory JSON = new JsonFactory();

  /** Returns a number with four digits. */
  private static BigDecimal rounded(double number) {
    BigDecimal four = new BigDecimal(number).round(new MathContext(4)).stripTrailingZeros();
    return four.setScale(Math.max(0, four.scale()), RoundingMode.UNNECESSARY);
  }

  /** Returns a row of names and values in turn. Omits fields that are null, empty or not finite. */
  static Row of(Object... namesAndValues) {
    Map<String, Object> fields = new LinkedHashMap<>();
    for (int i = 0; i < namesAndValues.length; i += 2) {
      Object value = namesAndValues[i + 1];
      if (value instanceof Double number) {
        value = Double.isFinite(number) ? rounded(number) : "";
      }
      if (value != null && !value.equals("")) {
        fields.put((String) namesAndValues[i], value);
      }
    }
    return new Row(fields);
  }

  /** Parses a line of JSON; the twin of {@link #toJson}. */
  @SuppressWarnings("unchecked")
  public static Row parse(String line) {
    if (read(line) instanceof Map<?, ?> fields) {
      return new Row((Map<String, Object>) fields);
    }
    throw new IllegalArgumentException("not a row: " + line);
  }

  /** Parses JSON: objects become maps, arrays lists, numbers {@link BigDecimal}. */
  public static Object read(String json) {
    try (JsonParser parser = JSON.createParser(json)) {
      parser.nextToken();
      return read(parser);
    } catch (IOException e) {
      throw new IllegalArgumentException("not JSON: " + json, e);
    }
  }

  private static Object read(JsonParser json) throws IOException {
    switch (json.currentToken()) {
      case START_OBJECT -> {
        Map<String, Object> fields = new LinkedHashMap<>();
        while (json.nextToken() == JsonToken.FIELD_NAME) {
          String name = json.currentName();
          json.nextToken();
          fields.put(name, read(json));
        }
        return fields;
      }
      case START_ARRAY -> {
        List<Object> elements = new ArrayList<>();
        while (json.nextToken() != JsonToken.END_ARRAY) {
          elements.add(read(json));
        }
        return elements;
      }
      case VALUE_NUMBER_INT, VALUE_NUMBER_FLOAT -> {
        return json.getDecimalValue();
      }
      case VALUE_NULL -> {
        return "";
      }
      default -> {
        return json.getText();
      }
    }
  }

  /** Returns a field as text, empty if the row does not have it. */
  public String text(String name) {
    Object value = fields.getOrDefault(name, "");
    return value instanceof BigDecimal number ? number.toPlainString() : value.toString();
  }

  /** Returns a field if it is a number. */
  public Optional<BigDecimal> number(String name) {
    return fields.get(name) instanceof BigDecimal number ? Optional.of(number) : Optional.empty();
  }

  /** Returns whether the row is a remark, not a measurement. */
  public boolean isNote() {
    return text("kind").equals("note");
  }

  /** Returns whether the goal is reached; true if there is none. */
  public boolean isReached() {
    String[] goal = text("goal").split(" ");
    if (goal.length < 3) {
      return true;
    }
    int order = number(goal[0]).orElseThrow().compareTo(new BigDecimal(goal[2]));
    return goal[1].equals("<=") ? order <= 0 : order >= 0;
  }

  /** Returns this row with additional fields. */
  public Row with(String name, String value) {
    Map<String, Object> more = new LinkedHashMap<>(fields);
    more.put(name, value);
    return new Row(more);
  }

  /** Returns this row; what pages need and it lacks is as in an older row of the same id. */
  Row orAs(Row older) {
    Map<String, Object> all = new LinkedHashMap<>(older.fields);
    all.keySet().retainAll(Set.of("series", "at", "goal", "cited"));
    all.putAll(fields);
    return new Row(all);
  }

  /** Returns the row as one line of JSON. */
  public String toJson() {
    StringWriter text = new StringWriter();
    try (JsonGenerator json = JSON.createGenerator(text)) {
      json.writeStartObject();
      for (Map.Entry<String, Object> field : fields.entrySet()) {
        if (field.getValue() instanceof BigDecimal number) {
          json.writeNumberField(field.getKey(), number);
        } else {
          json.writeStringField(field.getKey(), field.getValue().toString());
        }
      }
      json.writeEndObject();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
    return text.toString();
  }

  /** Returns the row for a terminal. */
  public String toLine() {
    String bench = text("id").split("/")[0];
    String peer = text("against").isEmpty() ? "" : text("against") + " " + text("peer");
    String ratio = text("ratio").isEmpty() ? "" : "ratio " + text("ratio");
    String goal =
        text("goal").isEmpty() ? "" : text("goal") + (isReached() ? " reached" : " MISSED");
    return Text.of(
            "%-16s %-58s %10s %-6s %s %s  %s %s",
            bench, text("what"), text("ours"), text("unit"), peer, ratio, goal, text("note"))
        .stripTrailing();
  }
}

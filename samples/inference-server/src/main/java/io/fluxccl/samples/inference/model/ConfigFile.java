// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.model;

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.json.JsonMapper;
import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;

/**
 * A JSON object of a model's folder that is read strictly: an unread key is refused, because it
 * could change the model's answers. A key whose value is null counts as missing.
 */
final class ConfigFile {
  /** Refuses keys that occur twice, and text after the value. */
  static final ObjectMapper JSON =
      JsonMapper.builder()
          .enable(JsonParser.Feature.STRICT_DUPLICATE_DETECTION)
          .enable(DeserializationFeature.FAIL_ON_TRAILING_TOKENS)
          .build();

  /** The largest width, or number of heads, tokens and the like. */
  static final int MOST = 1 << 24;

  private final String name;
  private final JsonNode json;
  private final Set<String> read = new HashSet<>();

  private ConfigFile(String name, JsonNode json) {
    this.name = name;
    this.json = json;
  }

  /**
   * Opens a file.
   *
   * @throws IOException if it can't be read, or is no JSON object
   */
  static ConfigFile open(Path file) throws IOException {
    byte[] content = FolderFile.read(file, "give the folder of a Hugging Face model");
    return new ConfigFile(file.toString(), FolderFile.parse(file, content));
  }

  private JsonNode value(String key) {
    read.add(key);
    JsonNode value = json.path(key);
    return value.isNull() ? json.path("") : value;
  }

  boolean has(String key) {
    return !value(key).isMissingNode();
  }

  /** Returns whether a key has the value null, which for some keys is none but their default. */
  boolean isNull(String key) {
    read.add(key);
    return json.path(key).isNull();
  }

  /** Returns a value of this key that is wrong, with what it should be. */
  IllegalArgumentException wrong(String key, String need) {
    JsonNode value = value(key);
    return new IllegalArgumentException(
        name
            + ": "
            + (value.isMissingNode() ? key + " is missing" : key + "=" + value)
            + "; "
            + need);
  }

  /** Returns the object of a key, if there is one. */
  Optional<ConfigFile> object(String key) {
    JsonNode value = value(key);
    if (!value.isMissingNode() && !value.isObject()) {
      throw wrong(key, "it must be an object");
    }
    return value.isObject()
        ? Optional.of(new ConfigFile(name + ": " + key, value))
        : Optional.empty();
  }

  int count(String key) {
    return count(key, 1, MOST);
  }

  int count(String key, int otherwise) {
    return has(key) ? count(key) : otherwise;
  }

  int count(String key, int least, int most) {
    JsonNode value = value(key);
    if (!value.isInt() || value.intValue() < least || value.intValue() > most) {
      throw wrong(key, "it must be a whole number from " + least + " to " + most);
    }
    return value.intValue();
  }

  double positive(String key) {
    JsonNode value = value(key);
    if (!value.isNumber() || !(value.doubleValue() > 0) || Double.isInfinite(value.doubleValue())) {
      throw wrong(key, "it must be a number above 0");
    }
    return value.doubleValue();
  }

  double positive(String key, double otherwise) {
    return has(key) ? positive(key) : otherwise;
  }

  boolean flag(String key) {
    JsonNode value = value(key);
    if (!value.isMissingNode() && !value.isBoolean()) {
      throw wrong(key, "it must be true or false");
    }
    return value.booleanValue();
  }

  /** Returns the names of a list. */
  List<String> names(String key) {
    List<String> names = new ArrayList<>();
    JsonNode value = value(key);
    value.forEach(each -> names.add(each.asText()));
    if (!value.isArray()) {
      throw wrong(key, "it must be a list");
    }
    return names;
  }

  String text(String key, String otherwise) {
    JsonNode value = value(key);
    if (!value.isMissingNode() && !value.isTextual()) {
      throw wrong(key, "it must be a text");
    }
    return value.asText(otherwise);
  }

  /** Returns a token, or several; empty if the key is missing. */
  Set<Integer> tokens(String key) {
    Set<Integer> tokens = new TreeSet<>();
    JsonNode value = value(key);
    for (JsonNode each : value.isArray() ? value : JSON.createArrayNode().add(value)) {
      if (each.isInt() && each.intValue() >= 0) {
        tokens.add(each.intValue());
      } else if (!each.isMissingNode() && !each.isNull()) {
        throw wrong(key, "it must be a token or a list of tokens");
      }
    }
    return tokens;
  }

  /** Refuses a value that this server does not implement. */
  void requireOnly(String key, Object supported) {
    JsonNode value = value(key);
    JsonNode expected = JSON.valueToTree(supported);
    boolean equal =
        value.isNumber() && expected.isNumber()
            ? value.doubleValue() == expected.doubleValue()
            : value.equals(expected);
    if (!value.isMissingNode() && !equal) {
      throw wrong(key, "this server supports only " + expected);
    }
  }

  /**
   * Refuses the keys that were not read, except those whose value is false.
   *
   * @param withoutEffect keys that do not change an answer
   */
  void refuseOthers(Set<String> withoutEffect) {
    for (Map.Entry<String, JsonNode> each : json.properties()) {
      JsonNode value = each.getValue();
      boolean off = value.isNull() || (value.isBoolean() && !value.booleanValue());
      if (!off && !read.contains(each.getKey()) && !withoutEffect.contains(each.getKey())) {
        throw wrong(each.getKey(), "this server does not know the key, which may change answers");
      }
    }
  }
}

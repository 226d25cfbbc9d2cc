// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.model;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.function.Consumer;

/** A copy of the small model's folder that a test changes. */
public record ModelFolder(Path path) {
  private static final Path MODEL = Path.of("model").toAbsolutePath();
  private static final ObjectMapper JSON = new ObjectMapper();

  /** Copies the small model, without its weights and its chat template. */
  public static ModelFolder copyTo(Path folder) throws IOException {
    for (String name : new String[] {"config.json", "tokenizer.json"}) {
      Files.copy(MODEL.resolve(name), folder.resolve(name));
    }
    return new ModelFolder(folder);
  }

  /** Writes a file. */
  public ModelFolder with(String name, String content) throws IOException {
    Files.writeString(path.resolve(name), content);
    return this;
  }

  /** Copies the weights, too. */
  public ModelFolder withWeights() throws IOException {
    Files.copy(MODEL.resolve("model.safetensors"), path.resolve("model.safetensors"));
    return this;
  }

  /** Replaces a file by a link to nothing. */
  public ModelFolder withDeadLink(String name) throws IOException {
    Files.deleteIfExists(path.resolve(name));
    Files.createSymbolicLink(path.resolve(name), path.resolve("nothing"));
    return this;
  }

  /** Changes tokenizer.json. */
  public ModelFolder tokenizer(Consumer<ObjectNode> change) throws IOException {
    Path file = path.resolve("tokenizer.json");
    JsonNode json = JSON.readTree(file.toFile());
    change.accept((ObjectNode) json);
    JSON.writeValue(file.toFile(), json);
    return this;
  }

  /** Adds special tokens, from 2048 on. */
  public ModelFolder withTokens(String... tokens) throws IOException {
    return tokenizer(
        json -> {
          ArrayNode added = (ArrayNode) json.get("added_tokens");
          for (int i = 0; i < tokens.length; i++) {
            ObjectNode token = added.get(0).deepCopy();
            added.add(token.put("id", 2048 + i).put("content", tokens[i]));
          }
        });
  }

  /** Puts the decoder of Llama 2 into tokenizer.json, which strips a blank at the beginning. */
  public ModelFolder withStrippingDecoder() throws IOException {
    return tokenizer(
        json -> {
          JsonNode own = json.get("decoder");
          ObjectNode decoder = json.putObject("decoder").put("type", "Sequence");
          ObjectNode strip = decoder.putArray("decoders").add(own).addObject();
          strip.put("type", "Strip").put("content", " ").put("start", 1).put("stop", 0);
        });
  }
}

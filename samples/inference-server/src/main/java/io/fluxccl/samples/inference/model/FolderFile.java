// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.model;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;

/** Reads files of a model's folder; its errors name the file and a remedy. */
final class FolderFile {
  private static final String LFS = "version https://git-lfs";

  private FolderFile() {}

  /** Returns whether a file exists, or a link that may have no target. */
  static boolean exists(Path file) {
    return Files.exists(file, LinkOption.NOFOLLOW_LINKS);
  }

  /**
   * Returns the content of a file.
   *
   * @param remedy what to do if the file is missing
   * @throws IOException if the file is missing, unreadable, or only a pointer to its content
   */
  static byte[] read(Path file, String remedy) throws IOException {
    if (!Files.exists(file)) {
      throw new IOException(
          exists(file)
              ? file + " links to a missing file; download the model again"
              : file + " is missing; " + remedy);
    }
    byte[] content;
    try {
      content = Files.readAllBytes(file);
    } catch (IOException e) {
      throw new IOException(file + " can't be read: " + e, e);
    }
    if (new String(content, 0, Math.min(content.length, 99), StandardCharsets.UTF_8)
        .startsWith(LFS)) {
      throw new IOException(file + " is only a pointer of Git LFS; run: git lfs pull");
    }
    return content;
  }

  /**
   * Returns a JSON object of the folder, or an empty one if it has none.
   *
   * @throws IOException naming the file, if it is no JSON object
   */
  static JsonNode optional(Path file) throws IOException {
    return exists(file) ? parse(file, read(file, "")) : ConfigFile.JSON.createObjectNode();
  }

  static JsonNode parse(Path file, byte[] content) throws IOException {
    return parse(ConfigFile.JSON, file, content);
  }

  static JsonNode parse(ObjectMapper mapper, Path file, byte[] content) throws IOException {
    try {
      JsonNode json = mapper.readTree(content);
      if (json.isObject()) {
        return json;
      }
    } catch (JsonProcessingException e) {
      throw new IOException(file + " is no JSON, download it again: " + e.getOriginalMessage(), e);
    }
    throw new IOException(file + " is no JSON object; download it again");
  }
}

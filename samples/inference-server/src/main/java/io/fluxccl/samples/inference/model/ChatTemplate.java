// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.model;

import java.io.IOException;
import java.nio.file.Path;
import java.util.List;

/** Makes a prompt of the messages of a chat. */
@FunctionalInterface
public interface ChatTemplate {
  /**
   * A message.
   *
   * @param role {@code system}, {@code user}, {@code assistant} or {@code tool}
   */
  record Message(String role, String content) {}

  /**
   * Returns the prompt, at the end of which the model answers, for {@link Tokenizer#encode}.
   *
   * @throws IllegalArgumentException if the model has no template, or its template refuses these
   *     messages
   */
  String render(List<Message> messages);

  /**
   * Reads the template of a model's folder: {@code chat_template.jinja}, else {@code chat_template}
   * of {@code tokenizer_config.json}. A folder without a template gets one that refuses all
   * messages.
   *
   * @throws IOException naming the file, if the template can't be rendered
   */
  static ChatTemplate read(Path folder, Tokenizer tokenizer) throws IOException {
    return FolderTemplate.read(folder, tokenizer);
  }
}

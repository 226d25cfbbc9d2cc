// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.model;

import java.util.List;
import java.util.function.Predicate;
import java.util.stream.Collectors;

/**
 * Makes a prompt of the messages of a chat. Texts that stand for special tokens are not escaped: a
 * message can contain them, as with most servers.
 */
@FunctionalInterface
public interface ChatTemplate {
  /** The messages, joined by newlines; for models that only continue a text. */
  ChatTemplate PLAIN =
      messages -> messages.stream().map(Message::content).collect(Collectors.joining("\n"));

  /** The template of Llama 3, without the token that begins a text: the tokenizer adds it. */
  ChatTemplate LLAMA_3 =
      messages ->
          messages.stream()
              .map(message -> Message.header(message.role()) + message.content().strip())
              .map(text -> text + "<|eot_id|>")
              .collect(Collectors.joining("", "", Message.header("assistant")));

  /**
   * A message.
   *
   * @param role {@code system}, {@code user}, {@code assistant} or {@code tool}
   */
  record Message(String role, String content) {
    private static String header(String role) {
      return "<|start_header_id|>" + role + "<|end_header_id|>\n\n";
    }
  }

  /** Returns the prompt, at the end of which the model answers. */
  String render(List<Message> messages);

  /**
   * Chooses the template of a model.
   *
   * @param vocabulary whether the tokenizer has a token of this text
   */
  static ChatTemplate of(Predicate<String> vocabulary) {
    return vocabulary.test("<|start_header_id|>") ? LLAMA_3 : PLAIN;
  }
}

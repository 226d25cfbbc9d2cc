// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.http;

import com.fasterxml.jackson.databind.node.ObjectNode;
import io.fluxccl.samples.inference.engine.TextPiece;
import java.time.Instant;
import java.util.Locale;
import java.util.concurrent.ThreadLocalRandom;

/** Writes one answer in OpenAI's form: whole, or as server-sent events. */
final class AnswerFormat {
  private final String id;
  private final long created = Instant.now().getEpochSecond();
  private final String model;
  private final boolean chat;
  private final boolean includeUsage;
  private boolean begun;

  AnswerFormat(ApiRequest request, String model) {
    this.chat = request.chat();
    this.includeUsage = request.includeUsage();
    this.model = model;
    ThreadLocalRandom random = ThreadLocalRandom.current(); // a UUID's reads a file
    String number = String.format(Locale.ROOT, "%016x%016x", random.nextLong(), random.nextLong());
    this.id = (chat ? "chatcmpl-" : "cmpl-") + number;
  }

  /** The whole answer. */
  ObjectNode whole(String text, TextPiece last) {
    ObjectNode answer = head(chat ? "chat.completion" : "text_completion");
    ObjectNode choice = choice(answer, last.end());
    if (chat) {
      choice.putObject("message").put("role", "assistant").put("content", text).putNull("refusal");
    } else {
      choice.put("text", text);
    }
    answer.set("usage", usage(last));
    return answer;
  }

  /** Returns the events for a piece; empty if the piece adds nothing. */
  String events(TextPiece piece) {
    StringBuilder events = new StringBuilder();
    if (chat && !begun) {
      ObjectNode first = chunk();
      ObjectNode delta = choice(first, TextPiece.End.NOT_YET).putObject("delta");
      delta.put("role", "assistant").put("content", "");
      events.append(event(first));
    }
    begun = true;
    if (!piece.text().isEmpty()) {
      events.append(event(textChunk(piece.text(), TextPiece.End.NOT_YET)));
    }
    if (piece.end() != TextPiece.End.NOT_YET) {
      events.append(event(textChunk("", piece.end())));
      if (includeUsage) {
        ObjectNode last = chunk();
        last.putArray("choices");
        last.set("usage", usage(piece));
        events.append(event(last));
      }
      events.append("data: [DONE]\n\n");
    }
    return events.toString();
  }

  /** An event. */
  static String event(ObjectNode data) {
    return "data: " + Json.text(data) + "\n\n";
  }

  private ObjectNode textChunk(String text, TextPiece.End end) {
    ObjectNode chunk = chunk();
    ObjectNode choice = choice(chunk, end);
    ObjectNode target = chat ? choice.putObject("delta") : choice;
    if (!chat || !text.isEmpty()) {
      target.put(chat ? "content" : "text", text);
    }
    return chunk;
  }

  private ObjectNode chunk() {
    ObjectNode chunk = head(chat ? "chat.completion.chunk" : "text_completion");
    if (includeUsage) {
      chunk.putNull("usage");
    }
    return chunk;
  }

  private ObjectNode head(String object) {
    return Json.object()
        .put("id", id)
        .put("object", object)
        .put("created", created)
        .put("model", model);
  }

  private static ObjectNode choice(ObjectNode answer, TextPiece.End end) {
    String finish = end == TextPiece.End.NOT_YET ? null : end.name().toLowerCase(Locale.ROOT);
    ObjectNode choice = answer.putArray("choices").addObject();
    return choice.put("index", 0).putNull("logprobs").put("finish_reason", finish);
  }

  private static ObjectNode usage(TextPiece last) {
    return Json.object()
        .put("prompt_tokens", last.promptTokens())
        .put("completion_tokens", last.tokens())
        .put("total_tokens", last.promptTokens() + last.tokens());
  }
}

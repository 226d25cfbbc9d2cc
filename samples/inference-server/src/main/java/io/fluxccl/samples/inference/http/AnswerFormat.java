// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.http;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.fluxccl.samples.inference.engine.TextPiece;
import io.fluxccl.samples.inference.engine.TextPiece.Logprob;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.ThreadLocalRandom;

/** Writes one answer in OpenAI's form: whole, or as server-sent events. */
final class AnswerFormat {
  private static final double LEAST_LOGPROB = -9999; // as OpenAI's; JSON has no infinity

  private final String id;
  private final long created = Instant.now().getEpochSecond();
  private final String model;
  private final ApiRequest request;
  private final boolean chat;
  private final Choice[] choices;
  private int running;

  /** A piece of one of the answer's choices. */
  record Part(int choice, TextPiece piece) {}

  /** The state of one choice. */
  private static final class Choice {
    final StringBuilder text = new StringBuilder();
    final List<Logprob> logprobs = new ArrayList<>();
    TextPiece last;

    /** The characters of the tokens whose logprobs are written. */
    int offset;
  }

  AnswerFormat(ApiRequest request, String model) {
    this.request = request;
    this.chat = request.chat();
    this.model = model;
    this.running = request.texts().size();
    this.choices = new Choice[running];
    for (int i = 0; i < running; i++) {
      choices[i] = new Choice();
    }
    ThreadLocalRandom random = ThreadLocalRandom.current(); // a UUID's reads a file
    String number = String.format(Locale.ROOT, "%016x%016x", random.nextLong(), random.nextLong());
    this.id = (chat ? "chatcmpl-" : "cmpl-") + number;
  }

  /** Keeps a part for {@link #whole}. */
  void add(Part part) {
    Choice choice = choices[part.choice];
    choice.text.append(part.piece.text());
    choice.logprobs.addAll(part.piece.logprobs());
    choice.last = part.piece;
  }

  /** The whole answer, of all parts. */
  ObjectNode whole() {
    ObjectNode answer = head(chat ? "chat.completion" : "text_completion");
    ArrayNode all = answer.putArray("choices");
    for (int i = 0; i < choices.length; i++) {
      ObjectNode choice = choice(all, i, choices[i].last.end(), choices[i].logprobs);
      String text = choices[i].text.toString();
      if (chat) {
        ObjectNode message = choice.putObject("message").put("role", "assistant");
        message.put("content", text).putNull("refusal");
      } else {
        choice.put("text", text);
      }
    }
    answer.set("usage", usage());
    return answer;
  }

  /** Returns the events for a part; empty if the part adds nothing. */
  String events(Part part) {
    StringBuilder events = new StringBuilder();
    TextPiece piece = part.piece;
    Choice own = choices[part.choice];
    if (chat && own.last == null) {
      ObjectNode first = chunk();
      ObjectNode delta = choice(first, part.choice).putObject("delta");
      delta.put("role", "assistant").put("content", "");
      events.append(event(first));
    }
    own.last = piece;
    if (!piece.text().isEmpty() || !piece.logprobs().isEmpty()) {
      events.append(event(textChunk(part, TextPiece.End.NOT_YET)));
    }
    if (piece.end() != TextPiece.End.NOT_YET) {
      TextPiece end = new TextPiece("", piece.promptTokens(), piece.tokens(), piece.end());
      events.append(event(textChunk(new Part(part.choice, end), piece.end())));
      if (--running == 0) {
        events.append(ends());
      }
    }
    return events.toString();
  }

  private String ends() {
    String done = "data: [DONE]\n\n";
    if (!request.includeUsage()) {
      return done;
    }
    ObjectNode last = chunk();
    last.putArray("choices");
    last.set("usage", usage());
    return event(last) + done;
  }

  /** An event. */
  static String event(ObjectNode data) {
    return "data: " + Json.text(data) + "\n\n";
  }

  private ObjectNode textChunk(Part part, TextPiece.End end) {
    ObjectNode chunk = chunk();
    TextPiece piece = part.piece;
    ObjectNode choice = choice(chunk.putArray("choices"), part.choice, end, piece.logprobs());
    ObjectNode target = chat ? choice.putObject("delta") : choice;
    if (!chat || end == TextPiece.End.NOT_YET) {
      target.put(chat ? "content" : "text", piece.text());
    }
    return chunk;
  }

  private ObjectNode chunk() {
    ObjectNode chunk = head(chat ? "chat.completion.chunk" : "text_completion");
    if (request.includeUsage()) {
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

  private ObjectNode choice(ObjectNode chunk, int index) {
    return choice(chunk.putArray("choices"), index, TextPiece.End.NOT_YET, List.of());
  }

  private ObjectNode choice(ArrayNode all, int index, TextPiece.End end, List<Logprob> logprobs) {
    String finish = end == TextPiece.End.NOT_YET ? null : end.name().toLowerCase(Locale.ROOT);
    ObjectNode choice = all.addObject().put("index", index);
    if (!request.hasLogprobs() || logprobs.isEmpty()) {
      choice.putNull("logprobs");
    } else if (chat) {
      ObjectNode own = choice.putObject("logprobs");
      ArrayNode content = own.putArray("content");
      logprobs.forEach(each -> chatLogprob(content, each).set("top_logprobs", best(each)));
      own.putNull("refusal");
    } else {
      promptLogprobs(choice.putObject("logprobs"), choices[index], logprobs);
    }
    return choice.put("finish_reason", finish);
  }

  private static ArrayNode best(Logprob logprob) {
    ArrayNode best = Json.MAPPER.createArrayNode();
    logprob.best().forEach(each -> chatLogprob(best, each));
    return best;
  }

  private static ObjectNode chatLogprob(ArrayNode to, Logprob logprob) {
    ObjectNode own = to.addObject().put("token", logprob.token()).put("logprob", value(logprob));
    if (logprob.token().indexOf('\ufffd') >= 0) {
      return own.putNull("bytes"); // a part of a character
    }
    ArrayNode bytes = own.putArray("bytes");
    for (byte each : logprob.token().getBytes(StandardCharsets.UTF_8)) {
      bytes.add(each & 0xff);
    }
    return own;
  }

  private void promptLogprobs(ObjectNode to, Choice choice, List<Logprob> logprobs) {
    ArrayNode tokens = to.putArray("tokens");
    ArrayNode values = to.putArray("token_logprobs");
    ArrayNode offsets = Json.MAPPER.createArrayNode();
    ArrayNode best = Json.MAPPER.createArrayNode();
    for (Logprob each : logprobs) {
      tokens.add(each.token());
      values.add(value(each));
      offsets.add(choice.offset);
      choice.offset += each.token().length();
      ObjectNode others = best.addObject();
      each.best().forEach(other -> others.put(other.token(), value(other)));
      others.put(each.token(), value(each));
    }
    boolean hasBest = request.texts().get(0).options().logprobs() > 0;
    to.set("top_logprobs", hasBest ? best : null);
    to.set("text_offset", offsets);
  }

  private static double value(Logprob logprob) {
    return Math.max(LEAST_LOGPROB, logprob.value());
  }

  /** Of all choices; each prompt counts once. */
  private ObjectNode usage() {
    int prompts = 0;
    int tokens = 0;
    for (int i = 0; i < choices.length; i++) {
      prompts += i % request.choices() == 0 ? choices[i].last.promptTokens() : 0;
      tokens += choices[i].last.tokens();
    }
    return Json.object()
        .put("prompt_tokens", prompts)
        .put("completion_tokens", tokens)
        .put("total_tokens", prompts + tokens);
  }
}

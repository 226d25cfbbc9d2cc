// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.http;

import com.fasterxml.jackson.databind.JsonNode;
import io.fluxccl.samples.inference.engine.TextRequest;
import io.fluxccl.samples.inference.engine.TextRequest.Sampling;
import io.fluxccl.samples.inference.model.ChatTemplate;
import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ThreadLocalRandom;
import java.util.function.Function;
import java.util.function.Predicate;
import java.util.stream.Collectors;

/**
 * The request of a client.
 *
 * @param text the request to the engine
 * @param chat whether it is answered as a chat
 * @param stream whether it is answered piece by piece
 * @param includeUsage whether the counts of tokens are to follow the pieces
 */
record ApiRequest(TextRequest text, boolean chat, boolean stream, boolean includeUsage) {
  private static final Set<String> ROLES =
      Set.of("system", "developer", "user", "assistant", "tool");
  private static final Set<String> KNOWN =
      Set.of(
          "model",
          "max_tokens",
          "temperature",
          "top_p",
          "seed",
          "stop",
          "n",
          "stream",
          "stream_options",
          "timeout",
          // Of no effect on the answer.
          "user",
          "metadata",
          "safety_identifier",
          "prompt_cache_key",
          "service_tier");

  private static final Set<String> OF_CHATS = Set.of("messages", "max_completion_tokens");

  /** Parameters that are not supported, with the values that ask for nothing. */
  private static final JsonNode UNSUPPORTED =
      Json.parse(
          "{\"audio\": [], \"best_of\": [1], \"echo\": [false], \"frequency_penalty\": [0],"
              + " \"function_call\": [\"none\"], \"functions\": [[]], \"ignore_eos\": [false],"
              + " \"logit_bias\": [{}], \"logprobs\": [false], \"min_p\": [0], \"min_tokens\": [0],"
              + " \"modalities\": [[\"text\"]], \"parallel_tool_calls\": [true, false],"
              + " \"presence_penalty\": [0], \"repetition_penalty\": [1],"
              + " \"response_format\": [{\"type\": \"text\"}], \"stop_token_ids\": [[]],"
              + " \"store\": [false], \"suffix\": [\"\"], \"tool_choice\": [\"none\", \"auto\"],"
              + " \"tools\": [[]], \"top_k\": [0, -1], \"top_logprobs\": [0]}");

  private static final int COMPLETION_TOKENS = 16; // as OpenAI's
  private static final int CHAT_TOKENS = 1024;
  private static final int MAX_STOPS = 4;
  private static final Duration DEADLINE = Duration.ofSeconds(120);
  private static final double LEAST_TEMPERATURE = 1e-5;
  private static final double MAX_DEADLINE_SECONDS = 3600;

  /**
   * Reads a request.
   *
   * @param template makes a prompt of messages; null to read a prompt
   * @param timeoutMillis of the header; null if there is none
   * @throws ApiError with the wrong parameter
   */
  static ApiRequest parse(byte[] body, String model, ChatTemplate template, String timeoutMillis) {
    JsonNode json = object(body);
    refuseUnsupported(json, template != null);
    String asked = string(json, "model", model);
    if (!asked.equals(model)) {
      throw unknownModel(asked);
    }
    if (integer(json, "n", 1) != 1) {
      throw ApiError.invalid("n", "must be 1");
    }
    boolean chat = template != null;
    String prompt = chat ? template.render(messages(json)) : prompt(json);
    boolean stream = bool(json, "stream");
    boolean usage = includesUsage(json.path("stream_options"), stream);
    Duration deadline = deadline(json, timeoutMillis);
    TextRequest text =
        new TextRequest(prompt, maxTokens(json, chat), sampling(json), stops(json), deadline);
    return new ApiRequest(text, chat, stream, usage);
  }

  /** Refuses what would change the answer and is not implemented. */
  private static void refuseUnsupported(JsonNode json, boolean chat) {
    for (Map.Entry<String, JsonNode> each : json.properties()) {
      String name = each.getKey();
      JsonNode value = each.getValue();
      boolean known =
          KNOWN.contains(name) || (chat ? OF_CHATS.contains(name) : name.equals("prompt"));
      if (!known && isPresent(value) && !asksForNothing(name, value)) {
        throw ApiError.client(
            400, "'" + name + "' is not supported by this server", name, "unsupported_parameter");
      }
    }
  }

  private static boolean asksForNothing(String name, JsonNode value) {
    for (JsonNode harmless : UNSUPPORTED.path(name)) {
      boolean equal =
          value.isNumber() && harmless.isNumber()
              ? value.doubleValue() == harmless.doubleValue()
              : value.equals(harmless);
      if (equal) {
        return true;
      }
    }
    return false;
  }

  private static boolean includesUsage(JsonNode options, boolean stream) {
    if (!isPresent(options)) {
      return false;
    }
    if (!stream || !options.isObject()) {
      throw ApiError.invalid("stream_options", "must be an object, and needs 'stream': true");
    }
    for (Map.Entry<String, JsonNode> each : options.properties()) {
      // Padding of the pieces, which this server does not send, would not change the answer.
      if (!Set.of("include_usage", "include_obfuscation").contains(each.getKey())) {
        throw ApiError.invalid("stream_options", "has '" + each.getKey() + "', which is unknown");
      }
    }
    return bool(options, "include_usage");
  }

  static ApiError unknownModel(String name) {
    return ApiError.client(
        404, "The model '" + name + "' does not exist", "model", "model_not_found");
  }

  private static JsonNode object(byte[] body) {
    try {
      JsonNode json = Json.STRICT.readTree(body);
      if (json.isObject()) {
        return json;
      }
    } catch (IOException e) {
      // Told below, without Jackson's words.
    }
    throw ApiError.client(400, "The body is not a JSON object", null, "invalid_json");
  }

  private static String prompt(JsonNode json) {
    JsonNode prompt = json.path("prompt");
    JsonNode only = prompt.isArray() && prompt.size() == 1 ? prompt.get(0) : prompt;
    if (!only.isTextual()) {
      throw ApiError.invalid("prompt", "must be a string, or a list of one string");
    }
    return only.textValue();
  }

  private static List<ChatTemplate.Message> messages(JsonNode json) {
    List<ChatTemplate.Message> messages = new ArrayList<>();
    for (JsonNode message : json.path("messages")) {
      String role = message.path("role").asText();
      if (!ROLES.contains(role)) {
        throw ApiError.invalid("messages", "must have roles of " + ROLES);
      }
      for (Map.Entry<String, JsonNode> each : message.properties()) {
        JsonNode value = each.getValue();
        boolean nothing = value.isContainerNode() ? value.isEmpty() : value.asText("").isEmpty();
        boolean used = Set.of("role", "content").contains(each.getKey());
        if (!used && isPresent(value) && !nothing) {
          throw ApiError.invalid("messages", "must not have '" + each.getKey() + "'");
        }
      }
      String sent = role.equals("developer") ? "system" : role;
      messages.add(new ChatTemplate.Message(sent, content(message.path("content"))));
    }
    if (messages.isEmpty()) {
      throw ApiError.invalid("messages", "must be a list of at least one message");
    }
    return messages;
  }

  private static String content(JsonNode content) {
    if (content.isTextual()) {
      return content.textValue();
    }
    StringBuilder text = new StringBuilder();
    for (JsonNode part : content) {
      if (!part.path("type").asText().equals("text") || !part.path("text").isTextual()) {
        throw ApiError.invalid("messages", "must have text only");
      }
      text.append(part.path("text").textValue());
    }
    if (!content.isArray()) {
      throw ApiError.invalid("messages", "must have contents that are strings or lists of texts");
    }
    return text.toString();
  }

  private static int maxTokens(JsonNode json, boolean chat) {
    boolean newer = chat && isPresent(json.path("max_completion_tokens"));
    String name = newer ? "max_completion_tokens" : "max_tokens";
    long tokens = integer(json, name, chat ? CHAT_TOKENS : COMPLETION_TOKENS);
    if (tokens < 1 || tokens > Integer.MAX_VALUE) {
      throw ApiError.invalid(name, "must be at least 1");
    }
    return (int) tokens;
  }

  private static Sampling sampling(JsonNode json) {
    double temperature = number(json, "temperature", 1);
    if (!(temperature >= 0 && temperature <= 2)) {
      throw ApiError.invalid("temperature", "must be from 0 to 2");
    }
    double topP = number(json, "top_p", 1);
    if (!(topP > 0 && topP <= 1)) {
      throw ApiError.invalid("top_p", "must be above 0, and at most 1");
    }
    long seed = integer(json, "seed", ThreadLocalRandom.current().nextLong());
    // Logits that are divided by less would be infinite.
    float greedy = temperature < LEAST_TEMPERATURE ? 0 : (float) temperature;
    return new Sampling(greedy, Math.max(Float.MIN_NORMAL, (float) topP), seed);
  }

  private static List<String> stops(JsonNode json) {
    JsonNode stop = json.path("stop");
    List<JsonNode> each = new ArrayList<>();
    if (stop.isArray()) {
      stop.forEach(each::add);
    } else if (isPresent(stop)) {
      each.add(stop);
    }
    if (each.size() > MAX_STOPS || each.stream().anyMatch(text -> text.asText().isEmpty())) {
      throw ApiError.invalid("stop", "must be up to " + MAX_STOPS + " strings, none empty");
    }
    return each.stream()
        .map(text -> checked(text, "stop", JsonNode::isTextual, "strings").textValue())
        .collect(Collectors.toUnmodifiableList());
  }

  private static Duration deadline(JsonNode json, String timeoutMillis) {
    double seconds = number(json, "timeout", DEADLINE.toSeconds());
    if (timeoutMillis != null) {
      seconds = timeoutMillis.matches("\\d{1,9}") ? Integer.parseInt(timeoutMillis) / 1000.0 : 0;
    }
    if (!(seconds > 0 && seconds <= MAX_DEADLINE_SECONDS)) {
      throw ApiError.invalid("timeout", "must be above 0, and at most an hour");
    }
    return Duration.ofNanos((long) (seconds * 1e9));
  }

  private static String string(JsonNode json, String name, String absent) {
    return value(json, name, absent, JsonNode::isTextual, JsonNode::textValue, "a string");
  }

  private static boolean bool(JsonNode json, String name) {
    return value(json, name, false, JsonNode::isBoolean, JsonNode::booleanValue, "true or false");
  }

  private static double number(JsonNode json, String name, double absent) {
    return value(json, name, absent, JsonNode::isNumber, JsonNode::doubleValue, "a number");
  }

  private static long integer(JsonNode json, String name, long absent) {
    Predicate<JsonNode> fits = node -> node.isIntegralNumber() && node.canConvertToLong();
    return value(json, name, absent, fits, JsonNode::longValue, "a whole number");
  }

  private static <T> T value(
      JsonNode json,
      String name,
      T absent,
      Predicate<JsonNode> is,
      Function<JsonNode, T> value,
      String what) {
    JsonNode node = json.path(name);
    return isPresent(node) ? value.apply(checked(node, name, is, what)) : absent;
  }

  private static boolean isPresent(JsonNode node) {
    return !node.isMissingNode() && !node.isNull();
  }

  private static JsonNode checked(JsonNode node, String name, Predicate<JsonNode> is, String what) {
    if (!is.test(node)) {
      throw ApiError.invalid(name, "must be " + what);
    }
    return node;
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.http;

import com.fasterxml.jackson.databind.JsonNode;
import io.fluxccl.samples.inference.engine.TextEngine;
import io.fluxccl.samples.inference.engine.TextRequest;
import io.fluxccl.samples.inference.engine.TextRequest.Adjustments;
import io.fluxccl.samples.inference.engine.TextRequest.Options;
import io.fluxccl.samples.inference.engine.TextRequest.Sampling;
import io.fluxccl.samples.inference.model.ChatTemplate;
import io.fluxccl.samples.inference.model.GenerationDefaults;
import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ThreadLocalRandom;
import java.util.function.Function;
import java.util.function.Predicate;
import java.util.stream.Collectors;

/**
 * The request of a client.
 *
 * @param texts the requests to the engine, one for each choice of the answer
 * @param choices how many of them in a row have the same prompt
 * @param chat whether it is answered as a chat
 * @param stream whether it is answered piece by piece
 * @param includeUsage whether the counts of tokens are to follow the pieces
 */
record ApiRequest(
    List<TextRequest> texts, int choices, boolean chat, boolean stream, boolean includeUsage) {
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
          "presence_penalty",
          "frequency_penalty",
          "logit_bias",
          "logprobs",
          "top_k",
          "min_p",
          "stop_token_ids",
          "ignore_eos",
          "min_tokens",
          // Of no effect on the answer.
          "user",
          "metadata",
          "safety_identifier",
          "prompt_cache_key",
          "service_tier");

  private static final Set<String> OF_CHATS =
      Set.of("messages", "max_completion_tokens", "top_logprobs");
  private static final Set<String> OF_PROMPTS = Set.of("prompt", "echo");

  /** Parameters that are not supported, with the values that ask for nothing. */
  private static final JsonNode UNSUPPORTED =
      Json.parse(
          "{\"audio\": [], \"best_of\": [1], \"echo\": [false], \"function_call\": [\"none\"],"
              + " \"functions\": [[]], \"modalities\": [[\"text\"]],"
              + " \"parallel_tool_calls\": [true, false], \"repetition_penalty\": [1],"
              + " \"response_format\": [{\"type\": \"text\"}], \"store\": [false],"
              + " \"suffix\": [\"\"], \"tool_choice\": [\"none\", \"auto\"], \"tools\": [[]],"
              + " \"top_logprobs\": [0]}");

  private static final int COMPLETION_TOKENS = 16; // as OpenAI's
  private static final int CHAT_TOKENS = 1024;
  private static final int MAX_STOPS = 4;
  private static final int MAX_CHOICES = 128;
  private static final int MAX_PROMPT_LOGPROBS = 5;
  private static final int MAX_CHAT_LOGPROBS = 20;
  private static final Duration DEADLINE = Duration.ofSeconds(120);
  private static final double LEAST_TEMPERATURE = 1e-5;
  private static final double MAX_DEADLINE_SECONDS = 3600;
  private static final double MAX_PENALTY = 2;
  private static final double MAX_BIAS = 100;

  /**
   * Reads a request.
   *
   * @param template makes a prompt of messages; null to read a prompt
   * @param timeoutMillis of the header; null if there is none
   * @throws ApiError with the wrong parameter
   */
  static ApiRequest parse(
      byte[] body, TextEngine engine, ChatTemplate template, String timeoutMillis) {
    String model = engine.modelName();
    JsonNode json = object(body);
    refuseUnsupported(json, template != null);
    String asked = string(json, "model", model);
    if (!asked.equals(model)) {
      throw unknownModel(asked);
    }
    boolean chat = template != null;
    boolean stream = bool(json, "stream");
    boolean usage = includesUsage(json.path("stream_options"), stream);
    Duration deadline = deadline(json, timeoutMillis);
    List<Prompt> prompts =
        chat ? List.of(new Prompt(rendered(template, json), List.of())) : prompts(json);
    int choices = (int) integer(json, "n", 1, 1, MAX_CHOICES);
    if (choices * prompts.size() > MAX_CHOICES) {
      throw ApiError.invalid("n", "times the prompts must be at most " + MAX_CHOICES);
    }
    int maxTokens = maxTokens(json, chat);
    Options options = options(json, chat, maxTokens);
    Sampling sampling = sampling(json, engine.defaults());
    List<String> stops = stops(json);
    List<TextRequest> texts = new ArrayList<>();
    for (Prompt prompt : prompts) {
      for (int choice = 0; choice < choices; choice++) {
        texts.add(
            new TextRequest(
                prompt.text,
                maxTokens,
                withSeed(sampling, sampling.seed() + choice),
                stops,
                deadline,
                withPrompt(options, prompt.tokens)));
      }
    }
    return new ApiRequest(texts, choices, chat, stream, usage);
  }

  private static String rendered(ChatTemplate template, JsonNode json) {
    try {
      return template.render(messages(json));
    } catch (IllegalArgumentException e) {
      throw ApiError.client(
          400, "The model's chat template: " + e.getMessage(), "messages", "invalid_value");
    }
  }

  /** A prompt as a text or, if there are any, as tokens. */
  private record Prompt(String text, List<Integer> tokens) {}

  private static Sampling withSeed(Sampling from, long seed) {
    return new Sampling(from.temperature(), from.topP(), seed, from.adjustments());
  }

  private static Options withPrompt(Options from, List<Integer> tokens) {
    return new Options(
        tokens,
        from.echo(),
        from.logprobs(),
        from.stopTokens(),
        from.ignoreEnds(),
        from.minTokens());
  }

  /** Returns whether the answer has logprobs. */
  boolean hasLogprobs() {
    return texts.get(0).options().logprobs() >= 0;
  }

  /** Refuses what would change the answer and is not implemented. */
  private static void refuseUnsupported(JsonNode json, boolean chat) {
    for (Map.Entry<String, JsonNode> each : json.properties()) {
      String name = each.getKey();
      JsonNode value = each.getValue();
      boolean known = KNOWN.contains(name) || (chat ? OF_CHATS : OF_PROMPTS).contains(name);
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

  private static List<Prompt> prompts(JsonNode json) {
    JsonNode prompt = json.path("prompt");
    if (!prompt.isArray() || prompt.path(0).isNumber()) {
      return List.of(prompt(prompt));
    }
    List<Prompt> prompts = new ArrayList<>();
    prompt.forEach(each -> prompts.add(prompt(each)));
    if (prompts.isEmpty()) {
      throw ApiError.invalid("prompt", "must not be an empty list");
    }
    return prompts;
  }

  private static Prompt prompt(JsonNode json) {
    if (json.isTextual()) {
      return new Prompt(json.textValue(), List.of());
    }
    if (!json.isArray() || json.isEmpty()) {
      throw ApiError.invalid("prompt", "must be a string, a list of token ids, or a list of these");
    }
    return new Prompt("", tokens(json, "prompt"));
  }

  private static List<Integer> tokens(JsonNode list, String name) {
    List<Integer> tokens = new ArrayList<>();
    for (JsonNode token : list) {
      Predicate<JsonNode> fits = node -> node.canConvertToInt() && node.intValue() >= 0;
      checked(token, name, JsonNode::isIntegralNumber, "a list of token ids");
      tokens.add(checked(token, name, fits, "a list of token ids").intValue());
    }
    return tokens;
  }

  private static Options options(JsonNode json, boolean chat, int maxTokens) {
    boolean echo = bool(json, "echo") && !chat;
    int logprobs = chat ? chatLogprobs(json) : promptLogprobs(json);
    if (echo && logprobs >= 0) {
      throw ApiError.invalid("echo", "must be false with 'logprobs': a prompt has none here");
    }
    JsonNode stops = json.path("stop_token_ids");
    if (isPresent(stops)) {
      checked(stops, "stop_token_ids", JsonNode::isArray, "a list of token ids");
    }
    return new Options(
        List.of(),
        echo,
        logprobs,
        Set.copyOf(tokens(stops, "stop_token_ids")),
        bool(json, "ignore_eos"),
        (int) integer(json, "min_tokens", 0, 0, maxTokens));
  }

  private static int promptLogprobs(JsonNode json) {
    boolean isOff = json.path("logprobs").isBoolean() && !json.path("logprobs").booleanValue();
    return isOff ? -1 : (int) integer(json, "logprobs", -1, 0, MAX_PROMPT_LOGPROBS);
  }

  private static int chatLogprobs(JsonNode json) {
    int best = (int) integer(json, "top_logprobs", 0, 0, MAX_CHAT_LOGPROBS);
    boolean wanted = bool(json, "logprobs");
    if (best > 0 && !wanted) {
      throw ApiError.invalid("top_logprobs", "needs 'logprobs': true");
    }
    return wanted ? best : -1;
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
    return (int) integer(json, name, chat ? CHAT_TOKENS : COMPLETION_TOKENS, 1, Integer.MAX_VALUE);
  }

  private static Sampling sampling(JsonNode json, GenerationDefaults absent) {
    double temperature = number(json, "temperature", absent.temperature(), 0, 2);
    double topP = number(json, "top_p", absent.topP(), 0, 1);
    if (topP == 0) {
      throw ApiError.invalid("top_p", "must be above 0, and at most 1");
    }
    long seed = integer(json, "seed", ThreadLocalRandom.current().nextLong());
    // Logits that are divided by less would be infinite.
    float greedy = temperature < LEAST_TEMPERATURE ? 0 : (float) temperature;
    Adjustments adjustments = adjustments(json, absent.topK());
    return new Sampling(greedy, Math.max(Float.MIN_NORMAL, (float) topP), seed, adjustments);
  }

  private static Adjustments adjustments(JsonNode json, int topK) {
    return new Adjustments(
        (int) Math.max(0, integer(json, "top_k", topK, -1, Integer.MAX_VALUE)),
        (float) number(json, "min_p", 0, 0, 1),
        (float) number(json, "presence_penalty", 0, -MAX_PENALTY, MAX_PENALTY),
        (float) number(json, "frequency_penalty", 0, -MAX_PENALTY, MAX_PENALTY),
        bias(json.path("logit_bias")));
  }

  private static Map<Integer, Float> bias(JsonNode json) {
    if (isPresent(json)) {
      checked(json, "logit_bias", JsonNode::isObject, "an object");
    }
    Map<Integer, Float> bias = new HashMap<>();
    for (Map.Entry<String, JsonNode> each : json.properties()) {
      if (!each.getKey().matches("\\d{1,9}")
          || !each.getValue().isNumber()
          || !(Math.abs(each.getValue().asDouble(Double.NaN)) <= MAX_BIAS)) {
        throw ApiError.invalid(
            "logit_bias", "must have token ids as names, and values from -100 to 100");
      }
      bias.put(Integer.valueOf(each.getKey()), each.getValue().floatValue());
    }
    return bias;
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

  private static double number(
      JsonNode json, String name, double absent, double least, double most) {
    double number = number(json, name, absent);
    if (!(number >= least && number <= most)) {
      throw ApiError.invalid(
          name, String.format(Locale.ROOT, "must be from %.0f to %.0f", least, most));
    }
    return number;
  }

  private static long integer(JsonNode json, String name, long absent, long least, long most) {
    long number = isPresent(json.path(name)) ? integer(json, name, absent) : absent;
    if (isPresent(json.path(name)) && (number < least || number > most)) {
      throw ApiError.invalid(name, "must be from " + least + " to " + most);
    }
    return number;
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

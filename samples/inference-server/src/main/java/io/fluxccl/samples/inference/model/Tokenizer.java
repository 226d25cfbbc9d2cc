// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.model;

import ai.djl.huggingface.tokenizers.HuggingFaceTokenizer;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HashMap;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.locks.ReadWriteLock;
import java.util.concurrent.locks.ReentrantReadWriteLock;
import java.util.function.Supplier;
import java.util.function.UnaryOperator;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.LongStream;

/**
 * Turns text into tokens and back, as {@code tokenizer.json} says. Thread-safe. After {@link
 * #close} its methods throw IllegalStateException.
 *
 * <p>The native tokenizer knows each special token only by a hidden name, which no client can
 * guess. {@link #hide} replaces the tokens' texts by these names; a special token in a text that is
 * not replaced is encoded as ordinary text.
 */
public final class Tokenizer implements AutoCloseable {
  /** The library's choice of native code; where there is a GPU it would download one for that. */
  private static final String FLAVOR = "RUST_FLAVOR";

  private static final ObjectMapper JSON = new ObjectMapper();

  private final HuggingFaceTokenizer tokenizer;

  /** The hidden names, by the texts of the special tokens. */
  private final Map<String, String> hidden;

  private final Pattern special;

  /** The beginning of a prompt that a chat template has made. */
  private final String chat;

  /** Native code must not run while its memory is freed: users share the lock, close() has it. */
  private final ReadWriteLock lock = new ReentrantReadWriteLock();

  private Tokenizer(HuggingFaceTokenizer tokenizer, Map<String, String> hidden, String chat) {
    this.tokenizer = tokenizer;
    this.hidden = hidden;
    this.chat = chat;
    String longestFirst =
        hidden.keySet().stream()
            .sorted(Comparator.comparing(String::length).reversed())
            .map(Pattern::quote)
            .collect(Collectors.joining("|"));
    // The first characters come first, because other ones are skipped much faster.
    String begins =
        hidden.keySet().stream()
            .map(text -> Pattern.quote(text.substring(0, text.offsetByCodePoints(0, 1))))
            .distinct()
            .collect(Collectors.joining("|"));
    this.special =
        Pattern.compile(hidden.isEmpty() ? "(?!)" : "(?=" + begins + ")(?:" + longestFirst + ")");
  }

  /**
   * Reads a model's folder.
   *
   * @throws IOException naming the file, if it is missing or no tokenizer
   */
  public static Tokenizer read(Path folder) throws IOException {
    Path file = folder.resolve("tokenizer.json");
    byte[] content =
        FolderFile.read(
            file,
            "this server reads no other form of tokenizer; transformers writes it:"
                + " AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)");
    ObjectNode json = (ObjectNode) FolderFile.parse(JSON, file, content);
    if (System.getenv(FLAVOR) == null && System.getProperty(FLAVOR) == null) {
      System.setProperty(FLAVOR, "cpu");
    }
    String secret = "\ue000" + UUID.randomUUID() + "-";
    Map<String, String> hidden = new HashMap<>();
    for (JsonNode token : json.path("added_tokens")) {
      String text = token.path("content").asText();
      if (token.path("special").asBoolean() && !text.isEmpty()) {
        hidden.put(text, secret + hidden.size() + "\ue001");
        ((ObjectNode) token).put("content", hidden.get(text));
      }
    }
    rename(json.path("model"), hidden);
    Map<String, String> options = Map.of("truncation", "false", "padding", "false");
    try {
      return new Tokenizer(
          HuggingFaceTokenizer.newInstance(
              new ByteArrayInputStream(JSON.writeValueAsBytes(json)), options),
          hidden,
          secret + "chat\ue001");
    } catch (RuntimeException e) {
      String reason = String.valueOf(e.getMessage()).lines().findFirst().orElse("");
      throw new IOException(file + " is no tokenizer that this server can read: " + reason, e);
    }
  }

  /** Renames special tokens in the vocabulary of a model, which is a map or a list of pairs. */
  private static void rename(JsonNode model, Map<String, String> hidden) {
    JsonNode vocabulary = model.path("vocab");
    hidden.forEach(
        (text, name) -> {
          if (vocabulary instanceof ObjectNode map && map.has(text)) {
            map.set(name, map.remove(text));
          }
        });
    if (vocabulary instanceof ArrayNode pairs) {
      for (JsonNode pair : pairs) {
        String name = hidden.get(pair.path(0).asText());
        if (name != null && pair instanceof ArrayNode own) {
          own.set(0, name);
        }
      }
    }
    String unknown = hidden.get(model.path("unk_token").asText());
    if (unknown != null) {
      ((ObjectNode) model).put("unk_token", unknown);
    }
  }

  /** Returns the text with special tokens by their hidden names. */
  String hide(String text) {
    return replaceSpecial(text, hidden::get);
  }

  String replaceSpecial(String text, UnaryOperator<String> replacement) {
    return special
        .matcher(text)
        .replaceAll(found -> Matcher.quoteReplacement(replacement.apply(found.group())));
  }

  /** Marks a text, with special tokens by their hidden names, as made by a chat template. */
  String asChat(String text) {
    return chat + text;
  }

  /** Returns whether a prompt gets begin tokens or others, as the post-processor says. */
  public boolean addsTokens() {
    return encode("").length > 0;
  }

  /**
   * Returns the tokens of a prompt. Special tokens in a client's text count, and begin tokens are
   * added; a chat template has written both itself.
   */
  public int[] encode(String prompt) {
    boolean isChat = prompt.startsWith(chat);
    String text = isChat ? prompt.substring(chat.length()) : hide(prompt);
    long[] ids = use(() -> tokenizer.encode(text, !isChat, false).getIds());
    return LongStream.of(ids).mapToInt(Math::toIntExact).toArray();
  }

  /** Returns the text of some tokens. Half a character at an end is U+FFFD. */
  public String decode(int[] tokens, int from, int to) {
    long[] ids = Arrays.stream(tokens, from, to).asLongStream().toArray();
    return use(() -> tokenizer.decode(ids, true));
  }

  private <T> T use(Supplier<T> work) {
    lock.readLock().lock();
    try {
      return work.get();
    } finally {
      lock.readLock().unlock();
    }
  }

  @Override
  public void close() {
    lock.writeLock().lock();
    try {
      tokenizer.close();
    } finally {
      lock.writeLock().unlock();
    }
  }
}

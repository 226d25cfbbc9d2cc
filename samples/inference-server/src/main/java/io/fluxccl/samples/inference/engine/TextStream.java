// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.engine;

import io.fluxccl.samples.inference.model.Tokenizer;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Deque;
import java.util.List;
import java.util.Map;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Sinks;

/**
 * The answer to one request: turns tokens into pieces of text, and ends at stop texts. One thread
 * calls its methods, except for {@link #pieces}. Buffers pieces that the client has not read.
 */
final class TextStream {
  /** A tokenizer decodes half a character to this one. */
  private static final char INCOMPLETE = '\ufffd';

  /** Tokens of the prompt on which the text of the first token may depend. */
  private static final int CONTEXT = 6;

  /**
   * The most tokens that wait for the rest of a character. Each step decodes all of them again, and
   * a model may choose bytes that are no character for its whole answer.
   */
  private static final int MOST_HELD = 16;

  private final Tokenizer tokenizer;
  private final int promptTokens;

  /**
   * The last tokens of the prompt precede the answer's in {@link #tokens}: they are decoded, too.
   */
  private final int begin;

  private final List<String> stops;

  /** The prompt, if the answer begins with it. */
  private String prefix;

  private final Sinks.Many<TextPiece> sink = Sinks.many().unicast().onBackpressureBuffer();

  private int[] tokens;
  private int count;

  /**
   * The tokens from here on are decoded together, because a token's text depends on the last one.
   */
  private int from;

  /** The tokens up to here are in {@link #text}. */
  private int read;

  /** The answer's tokens that were taken out of {@link #tokens}, as they have no text. */
  private int dropped;

  private final StringBuilder text = new StringBuilder();

  /** The text up to here has been sent. */
  private int sent;

  /** The logprobs that are not sent yet, each with the place in {@link #text} of its token. */
  private final Deque<Map.Entry<Integer, TextPiece.Logprob>> logprobs = new ArrayDeque<>();

  private boolean over;

  TextStream(Tokenizer tokenizer, int[] prompt, List<String> stops, String prefix) {
    this.prefix = prefix;
    this.tokenizer = tokenizer;
    this.promptTokens = prompt.length;
    this.begin = Math.min(prompt.length, CONTEXT);
    this.tokens = Arrays.copyOfRange(prompt, prompt.length - begin, prompt.length + 16);
    this.count = begin;
    this.read = begin;
    this.stops = stops;
  }

  Flux<TextPiece> pieces() {
    return sink.asFlux();
  }

  /**
   * Adds a token.
   *
   * @return false if its text ends the answer; what follows is ignored
   */
  boolean add(int token, TextPiece.End end) {
    return add(token, end, List.of());
  }

  /**
   * Adds a token.
   *
   * @param chances of this token, then of the most likely ones; empty if the client wants none
   * @return false if its text ends the answer; what follows is ignored
   */
  boolean add(int token, TextPiece.End end, List<HostChoice.Logprob> chances) {
    if (over) {
      return false;
    }
    if (!chances.isEmpty()) {
      List<TextPiece.Logprob> named = chances.stream().map(this::named).toList();
      TextPiece.Logprob own = named.get(0);
      List<TextPiece.Logprob> best = List.copyOf(named.subList(1, named.size()));
      logprobs.add(Map.entry(text.length(), new TextPiece.Logprob(own.token(), own.value(), best)));
    }
    if (count == tokens.length) {
      tokens = Arrays.copyOf(tokens, 2 * count);
    }
    tokens[count++] = token;
    decode(end != TextPiece.End.NOT_YET);
    int stop = firstStop();
    if (stop >= 0) {
      text.setLength(Math.max(stop, sent));
      logprobs.removeIf(each -> each.getKey() >= text.length());
      send(text.length(), TextPiece.End.STOP);
    } else {
      send(end == TextPiece.End.NOT_YET ? safeLength() : text.length(), end);
    }
    return !over;
  }

  /** The token's text after the last one, as decoders may strip a blank at the beginning. */
  private TextPiece.Logprob named(HostChoice.Logprob chance) {
    int[] both = {count == 0 ? 0 : tokens[count - 1], chance.token()};
    String before = tokenizer.decode(both, 0, 1);
    String all = tokenizer.decode(both, 0, 2);
    boolean follows = count > 0 && all.startsWith(before) && before.indexOf(INCOMPLETE) < 0;
    String own = follows ? all.substring(before.length()) : tokenizer.decode(both, 1, 2);
    return new TextPiece.Logprob(own, chance.value(), List.of());
  }

  /** Ends the answer: the model chose a token that ends texts, and has no text itself. */
  void end() {
    if (!over) {
      decode(true);
      send(text.length(), TextPiece.End.STOP);
    }
  }

  void fail(Throwable reason) {
    over = true;
    sink.tryEmitError(reason);
  }

  private void decode(boolean last) {
    String before = tokenizer.decode(tokens, from, read);
    String all = tokenizer.decode(tokens, from, count);
    int known = before.length();
    // The prompt may end with half a character.
    while (read == begin && known > 0 && before.charAt(known - 1) == INCOMPLETE) {
      known--;
    }
    boolean isHeld = !last && count - read < MOST_HELD;
    if (all.length() > known && !(isHeld && all.charAt(all.length() - 1) == INCOMPLETE)) {
      text.append(all, known, all.length());
      from = read;
      read = count;
    } else if (!isHeld) {
      dropped += count - read;
      count = read;
    }
  }

  private int firstStop() {
    int first = -1;
    for (String stop : stops) {
      int at = text.indexOf(stop, Math.max(0, sent - stop.length()));
      first = at >= 0 && (first < 0 || at < first) ? at : first;
    }
    return first;
  }

  /** Returns how much of the text can't be the beginning of a stop text. */
  private int safeLength() {
    int safe = text.length();
    for (String stop : stops) {
      for (int held = Math.min(stop.length() - 1, text.length() - sent); held > 0; held--) {
        if (stop.startsWith(text.substring(text.length() - held))) {
          safe = Math.min(safe, text.length() - held);
          break;
        }
      }
    }
    return safe;
  }

  private void send(int to, TextPiece.End end) {
    over = end != TextPiece.End.NOT_YET;
    List<TextPiece.Logprob> own = new ArrayList<>();
    while (!logprobs.isEmpty() && (over || logprobs.peek().getKey() < to)) {
      own.add(logprobs.remove().getValue());
    }
    String piece = prefix + text.substring(sent, to);
    sink.tryEmitNext(new TextPiece(piece, promptTokens, count + dropped - begin, end, own));
    prefix = "";
    sent = to;
    if (over) {
      sink.tryEmitComplete();
    }
  }
}

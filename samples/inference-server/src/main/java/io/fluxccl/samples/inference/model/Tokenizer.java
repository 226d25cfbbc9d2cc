// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.model;

import ai.djl.huggingface.tokenizers.HuggingFaceTokenizer;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.locks.ReadWriteLock;
import java.util.concurrent.locks.ReentrantReadWriteLock;
import java.util.function.Supplier;
import java.util.stream.LongStream;

/**
 * Turns text into tokens and back, as {@code tokenizer.json} says. Thread-safe. After {@link
 * #close} its methods throw IllegalStateException.
 */
public final class Tokenizer implements AutoCloseable {
  /** The library's choice of native code; where there is a GPU it would download one for that. */
  private static final String FLAVOR = "RUST_FLAVOR";

  private final HuggingFaceTokenizer tokenizer;

  /** Native code must not run while its memory is freed: users share the lock, close() has it. */
  private final ReadWriteLock lock = new ReentrantReadWriteLock();

  private Tokenizer(HuggingFaceTokenizer tokenizer) {
    this.tokenizer = tokenizer;
  }

  /** Reads a model's folder. */
  public static Tokenizer read(Path folder) throws IOException {
    Map<String, String> options = Map.of("truncation", "false", "padding", "false");
    Path file = folder.resolve("tokenizer.json");
    if (!Files.isRegularFile(file)) {
      throw new IOException(file + " is missing; this server reads no other form of tokenizer");
    }
    if (System.getenv(FLAVOR) == null && System.getProperty(FLAVOR) == null) {
      System.setProperty(FLAVOR, "cpu");
    }
    return new Tokenizer(HuggingFaceTokenizer.newInstance(file, options));
  }

  /** Returns whether the vocabulary has a token of this text. */
  public boolean has(String token) {
    return use(() -> tokenizer.tokenize(token).contains(token));
  }

  /** Returns the tokens of a prompt. */
  public int[] encode(String text) {
    long[] ids = use(() -> tokenizer.encode(text).getIds());
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

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.wire.WireReader;
import io.fluxccl.wire.WireWriter;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;

/**
 * The signatures of the latest calls of one order, each with a hash of all calls until then. If two
 * ranks have equal hashes of one call, they have made the same calls before it, too. One thread at
 * a time adds calls, which allocates nothing and takes no lock. Any thread may copy them.
 */
final class CallHistory {
  /** Calls that a rank keeps. */
  static final int KEPT = 1024;

  /** Calls in a message, and those with one peer that a rank keeps. */
  static final int SENT = 64;

  private static final VarHandle LAST;
  private static final int WORDS = 3;
  private static final int COUNT = 1;
  private static final int CHAIN = 2;

  static {
    try {
      LAST = MethodHandles.lookup().findVarHandle(CallHistory.class, "last", long.class);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  private final long[] words;
  private final int kept;
  private long chain;

  /** The number of the oldest call that is valid. */
  private long first = 1;

  /** The number of the last call, from 1. */
  @SuppressWarnings("FieldMayBeFinal") // LAST writes it
  private long last;

  /** Creates an empty history that keeps a number of calls. */
  CallHistory(int kept) {
    this.kept = kept;
    this.words = new long[kept * WORDS];
  }

  private int at(long number) {
    return (int) ((number - 1) % kept) * WORDS;
  }

  /** Adds a call; returns the hash of all calls until this one. */
  long add(long what, long count) {
    long number = last + 1;
    int at = at(number);
    chain = CallSignature.mix(CallSignature.mix(chain, what), count);
    words[at] = what;
    words[at + COUNT] = count;
    words[at + CHAIN] = chain;
    // Pairs with the acquire in copy().
    LAST.setRelease(this, number);
    return chain;
  }

  /** Returns the hash of all calls until one that is kept. */
  long hash(long number) {
    return number == 0 ? 0 : words[at(number) + CHAIN];
  }

  /** Takes back the last call. */
  void removeLast() {
    long number = last - 1;
    chain = hash(number);
    LAST.setRelease(this, number);
  }

  /** Returns the number of calls so far. */
  long last() {
    return (long) LAST.getAcquire(this);
  }

  /** Returns a copy of the latest calls, which no thread changes. */
  CallHistory copy() {
    CallHistory copy = new CallHistory(kept);
    long until = last();
    System.arraycopy(words, 0, copy.words, 0, words.length);
    VarHandle.loadLoadFence();
    // The writer may have begun to overwrite one call more than it has published.
    long overwritten = (long) LAST.getOpaque(this) + 1 - kept;
    copy.first = Math.max(1, overwritten + 1);
    copy.last = until;
    return copy;
  }

  /** Returns the number of the first call that differs from a peer's; 0 if none is known. */
  long firstDifference(CallHistory other) {
    long common = Math.min(last, other.last);
    long oldest = Math.max(first, other.first);
    if (common < oldest || has(CHAIN, other, common)) {
      return 0;
    }
    for (long number = oldest; number < common; number++) {
      if (!has(0, other, number) || !has(COUNT, other, number)) {
        return number;
      }
    }
    return common; // if this call is the same, one before the oldest differs
  }

  private boolean has(int word, CallHistory other, long number) {
    return words[at(number) + word] == other.words[other.at(number) + word];
  }

  /** Returns the text of a call that is kept. */
  String text(long number, boolean isHashShown) {
    return CallSignature.text(words[at(number)], words[at(number) + COUNT], isHashShown);
  }

  /** Writes the latest calls of a copy. */
  void write(WireWriter out) {
    int n = (int) Math.max(0, Math.min(SENT, last - first + 1));
    out.int64(last).int32(n);
    for (long number = last - n + 1; number <= last; number++) {
      int at = at(number);
      out.int64(words[at]).int64(words[at + COUNT]).int64(words[at + CHAIN]);
    }
  }

  /** Reads what {@link #write} has written. */
  static CallHistory read(WireReader in) {
    long last = in.int64("last call", 0, Long.MAX_VALUE / 2);
    int n = in.int32("calls", 0, (int) Math.min(SENT, last));
    CallHistory history = new CallHistory(SENT);
    history.last = last;
    history.first = last - n + 1;
    for (long number = history.first; number <= last; number++) {
      int at = history.at(number);
      history.words[at] = in.int64("what");
      history.words[at + COUNT] = in.int64("count");
      history.words[at + CHAIN] = in.int64("hash");
    }
    return history;
  }
}

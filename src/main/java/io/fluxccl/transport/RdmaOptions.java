// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport;

import io.fluxccl.InvalidUsage;
import java.time.Duration;

/**
 * The options of one end of a connection over {@link Transport#IB0} to {@link Transport#IB7}; the
 * other end may have different options. Immutable; {@code with…} methods return a changed copy.
 *
 * @param sendQueueSize the most requests in flight at the device: a power of two, 16 to 16384
 * @param pollBatch deprecated; ignored
 * @param inlineThreshold deprecated; ignored
 * @param maxMessage the length of the largest request in bytes, 4 KiB to 1 GiB; longer writes are
 *     split
 * @param retries how often the device resends a packet that was not acknowledged, 1 to 7; Soft-RoCE
 *     takes 7 for no limit
 * @param ackTimeout how long the device waits for an acknowledgement each time, 1 ms to 60 s;
 *     rounded up to 4.096 us times a power of two. The device detects a lost peer after about
 *     {@code ackTimeout * (retries + 1)}; some devices take up to four times as long.
 */
public record RdmaOptions(
    int sendQueueSize,
    int pollBatch,
    int inlineThreshold,
    int maxMessage,
    int retries,
    Duration ackTimeout) {
  /** 256 requests, messages of 1 MiB, 6 retries of 268 ms. */
  public static final RdmaOptions DEFAULT =
      new RdmaOptions(256, 32, 64, 1 << 20, 6, Duration.ofMillis(268));

  private static final long TICK_NANOS = 4096;

  /** Checks that all values are in range. */
  public RdmaOptions {
    check("sendQueueSize", sendQueueSize, 16, 16384);
    if (Integer.bitCount(sendQueueSize) != 1) {
      throw InvalidUsage.of("sendQueueSize=%s; give a power of two", sendQueueSize);
    }
    check("maxMessage", maxMessage, 4096, 1 << 30);
    check("retries", retries, 1, 7);
    if (ackTimeout.toMillis() < 1 || ackTimeout.toMillis() > 60_000) {
      throw InvalidUsage.of("ackTimeout=%s; give 1 ms to 60 s", ackTimeout);
    }
  }

  /**
   * Returns the value that was given for the size of polls.
   *
   * @deprecated it is ignored: polls take 32 completions
   */
  @Deprecated
  public int pollBatch() {
    return pollBatch;
  }

  /**
   * Returns the value that was given for the size of inline writes.
   *
   * @deprecated it is ignored: writes of up to 64 bytes are inline
   */
  @Deprecated
  public int inlineThreshold() {
    return inlineThreshold;
  }

  private static void check(String name, int value, int least, int most) {
    if (value < least || value > most) {
      throw InvalidUsage.of("%s=%s; give %s to %s", name, value, least, most);
    }
  }

  /** Returns these options with another send queue size. */
  public RdmaOptions withSendQueueSize(int requests) {
    return new RdmaOptions(requests, pollBatch, inlineThreshold, maxMessage, retries, ackTimeout);
  }

  /**
   * Returns these options with another value of {@link #pollBatch}.
   *
   * @deprecated the value is ignored
   */
  @Deprecated
  public RdmaOptions withPollBatch(int completions) {
    return new RdmaOptions(
        sendQueueSize, completions, inlineThreshold, maxMessage, retries, ackTimeout);
  }

  /**
   * Returns these options with another value of {@link #inlineThreshold}.
   *
   * @deprecated the value is ignored
   */
  @Deprecated
  public RdmaOptions withInlineThreshold(int bytes) {
    return new RdmaOptions(sendQueueSize, pollBatch, bytes, maxMessage, retries, ackTimeout);
  }

  /** Returns these options with another maximum length of requests. */
  public RdmaOptions withMaxMessage(int bytes) {
    return new RdmaOptions(sendQueueSize, pollBatch, inlineThreshold, bytes, retries, ackTimeout);
  }

  /** Returns these options with another number of retries and another acknowledgement timeout. */
  public RdmaOptions withRetries(int times, Duration each) {
    return new RdmaOptions(sendQueueSize, pollBatch, inlineThreshold, maxMessage, times, each);
  }

  /**
   * Returns {@link #ackTimeout()} as devices encode it: the least exponent e such that 4.096 us *
   * 2^e is not shorter.
   */
  public int ackTimeoutExponent() {
    int exponent = 0;
    while (TICK_NANOS << exponent < ackTimeout.toNanos()) {
      exponent++;
    }
    return exponent;
  }
}

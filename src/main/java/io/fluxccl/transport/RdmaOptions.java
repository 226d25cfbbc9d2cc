package io.fluxccl.transport;

import io.fluxccl.InvalidUsage;
import java.time.Duration;

/**
 * The options of one end of a connection over {@link Transport#IB0} to {@link Transport#IB7}; the
 * other end may have other ones. Immutable; {@code with…} methods return a changed copy.
 *
 * @param sendQueueSize requests that may be with the device at once: a power of two, 16 to 16384
 * @param pollBatch completions taken at a time, 1 to 1024
 * @param inlineThreshold bytes up to which a write travels inside its request, when it is of host
 *     memory and the device can: 0 to 1024
 * @param maxMessage bytes of the largest request, 4 KiB to 1 GiB; longer writes are split
 * @param retries how often the device sends a packet again that nobody acknowledged, 1 to 7
 * @param ackTimeout how long the device waits for an acknowledgement each time, 1 ms to 60 s;
 *     rounded up to 4.096 us times a power of two. A peer that is gone is noticed after about this
 *     times {@code retries + 1}, which some devices stretch to four times as long.
 */
public record RdmaOptions(
    int sendQueueSize,
    int pollBatch,
    int inlineThreshold,
    int maxMessage,
    int retries,
    Duration ackTimeout) {
  /** 256 requests, batches of 32, 64 bytes inline, messages of 1 MiB, 7 retries of 268 ms. */
  public static final RdmaOptions DEFAULT =
      new RdmaOptions(256, 32, 64, 1 << 20, 7, Duration.ofMillis(268));

  private static final long TICK_NANOS = 4096;

  /** Refuses values that are out of range. */
  public RdmaOptions {
    check("sendQueueSize", sendQueueSize, 16, 16384);
    if (Integer.bitCount(sendQueueSize) != 1) {
      throw InvalidUsage.of("sendQueueSize=%s; give a power of two", sendQueueSize);
    }
    check("pollBatch", pollBatch, 1, 1024);
    check("inlineThreshold", inlineThreshold, 0, 1024);
    check("maxMessage", maxMessage, 4096, 1 << 30);
    check("retries", retries, 1, 7);
    if (ackTimeout.toMillis() < 1 || ackTimeout.toMillis() > 60_000) {
      throw InvalidUsage.of("ackTimeout=%s; give 1 ms to 60 s", ackTimeout);
    }
  }

  private static void check(String name, int value, int least, int most) {
    if (value < least || value > most) {
      throw InvalidUsage.of("%s=%s; give %s to %s", name, value, least, most);
    }
  }

  /** Returns these options with another length of the send queue. */
  public RdmaOptions withSendQueueSize(int requests) {
    return new RdmaOptions(requests, pollBatch, inlineThreshold, maxMessage, retries, ackTimeout);
  }

  /** Returns these options with another batch of completions. */
  public RdmaOptions withPollBatch(int completions) {
    return new RdmaOptions(
        sendQueueSize, completions, inlineThreshold, maxMessage, retries, ackTimeout);
  }

  /** Returns these options with another limit of writes that travel inside their request. */
  public RdmaOptions withInlineThreshold(int bytes) {
    return new RdmaOptions(sendQueueSize, pollBatch, bytes, maxMessage, retries, ackTimeout);
  }

  /** Returns these options with another largest request. */
  public RdmaOptions withMaxMessage(int bytes) {
    return new RdmaOptions(sendQueueSize, pollBatch, inlineThreshold, bytes, retries, ackTimeout);
  }

  /** Returns these options with other retries. */
  public RdmaOptions withRetries(int times, Duration each) {
    return new RdmaOptions(sendQueueSize, pollBatch, inlineThreshold, maxMessage, times, each);
  }

  /**
   * Returns {@link #ackTimeout()} in the form of devices: the least e with 4.096 us * 2^e as long.
   */
  public int ackTimeoutExponent() {
    int exponent = 0;
    while (TICK_NANOS << exponent < ackTimeout.toNanos()) {
      exponent++;
    }
    return exponent;
  }
}

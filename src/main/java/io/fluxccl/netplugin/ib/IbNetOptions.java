package io.fluxccl.netplugin.ib;

import io.fluxccl.InvalidUsage;
import io.fluxccl.transport.RdmaOptions;
import java.time.Duration;
import java.util.function.UnaryOperator;

/**
 * How RDMA is used. Immutable; {@link #DEFAULT} works.
 *
 * @param timeout the longest time that a request may take, and a connect or accept, these at least
 *     10 s; zero for no limit
 * @param rdma of the queue pairs
 */
public record IbNetOptions(Duration timeout, RdmaOptions rdma) {
  /** What is used where nothing is said: 10 minutes. */
  public static final IbNetOptions DEFAULT =
      new IbNetOptions(Duration.ofMinutes(10), RdmaOptions.DEFAULT);

  private static final String TIMEOUT = "FLUXCCL_NET_TIMEOUT";
  private static final Duration LEAST_CONNECT = Duration.ofSeconds(10);

  /** Refuses values that can't be. */
  public IbNetOptions {
    if (timeout.isNegative()) {
      throw new InvalidUsage("timeout=" + timeout + " is negative");
    }
  }

  /** The longest time in nanoseconds that a connect or accept may take; 0 for no limit. */
  long connectNanos() {
    return timeout.isZero() ? 0 : Math.max(timeout.toNanos(), LEAST_CONNECT.toNanos());
  }

  /**
   * The options that the environment asks for: {@code FLUXCCL_NET_TIMEOUT} (seconds).
   *
   * @param variable gives a variable's value, or null
   * @return the options
   * @throws InvalidUsage naming the variable that can't be read
   */
  public static IbNetOptions fromEnvironment(UnaryOperator<String> variable) {
    String text = variable.apply(TIMEOUT);
    if (text == null || text.isBlank()) {
      return DEFAULT;
    }
    try {
      return DEFAULT.withTimeout(
          Duration.ofNanos((long) (Double.parseDouble(text.trim()) * 1_000_000_000)));
    } catch (NumberFormatException e) {
      throw new InvalidUsage(TIMEOUT + "=" + text + "; give seconds, 0 for no limit", e);
    }
  }

  /** The same with another limit for requests. */
  public IbNetOptions withTimeout(Duration limit) {
    return new IbNetOptions(limit, rdma);
  }

  /** The same with other queue pairs. */
  public IbNetOptions withRdma(RdmaOptions options) {
    return new IbNetOptions(timeout, options);
  }
}

package io.fluxccl.netplugin.ib;

import io.fluxccl.InvalidUsage;
import io.fluxccl.netplugin.TableOptions;
import io.fluxccl.transport.RdmaOptions;
import java.time.Duration;
import java.util.function.UnaryOperator;

/**
 * How RDMA is used. Immutable; {@link #DEFAULT} works.
 *
 * @param timeout the longest time that a request may take; zero for no limit
 * @param leastConnect what a connect or accept may take where {@code timeout} is shorter
 * @param rdma of the queue pairs
 * @param table where the table of connections is shown
 */
public record IbNetOptions(
    Duration timeout, Duration leastConnect, RdmaOptions rdma, TableOptions table) {
  /** What is used where nothing is said: 10 minutes, and 10 s. */
  public static final IbNetOptions DEFAULT =
      new IbNetOptions(
          Duration.ofMinutes(10), Duration.ofSeconds(10), RdmaOptions.DEFAULT, TableOptions.NONE);

  private static final String TIMEOUT = "FLUXCCL_NET_TIMEOUT";

  /** Refuses values that can't be. */
  public IbNetOptions {
    if (timeout.isNegative() || leastConnect.isNegative()) {
      throw new InvalidUsage(
          "timeout=" + timeout + ", leastConnect=" + leastConnect + "; give zero or more");
    }
  }

  /** The longest time in nanoseconds that a connect or accept may take; 0 for no limit. */
  long connectNanos() {
    return timeout.isZero() ? 0 : Math.max(timeout.toNanos(), leastConnect.toNanos());
  }

  /**
   * The options that the environment asks for: {@code FLUXCCL_NET_TIMEOUT} (seconds), {@code
   * FLUXCCL_NET_TABLE}, {@code FLUXCCL_NET_JMX}.
   *
   * @param variable gives a variable's value, or null
   * @return the options
   * @throws InvalidUsage naming the variable that can't be read
   */
  public static IbNetOptions fromEnvironment(UnaryOperator<String> variable) {
    IbNetOptions options = DEFAULT.withTable(TableOptions.fromEnvironment(variable));
    String text = variable.apply(TIMEOUT);
    if (text == null || text.isBlank()) {
      return options;
    }
    try {
      return options.withTimeouts(
          Duration.ofNanos((long) (Double.parseDouble(text.trim()) * 1_000_000_000)),
          DEFAULT.leastConnect);
    } catch (NumberFormatException e) {
      throw new InvalidUsage(TIMEOUT + "=" + text + "; give seconds, 0 for no limit", e);
    }
  }

  /** The same with another limit for requests, and another least one for connects and accepts. */
  public IbNetOptions withTimeouts(Duration requests, Duration connects) {
    return new IbNetOptions(requests, connects, rdma, table);
  }

  /** The same with other queue pairs. */
  public IbNetOptions withRdma(RdmaOptions options) {
    return new IbNetOptions(timeout, leastConnect, options, table);
  }

  /** The same with the table of connections shown elsewhere. */
  public IbNetOptions withTable(TableOptions other) {
    return new IbNetOptions(timeout, leastConnect, rdma, other);
  }
}

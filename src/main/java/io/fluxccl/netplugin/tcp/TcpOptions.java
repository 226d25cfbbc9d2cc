// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.tcp;

import io.fluxccl.InvalidUsage;
import io.fluxccl.netplugin.TableOptions;
import io.fluxccl.settings.Settings;
import io.fluxccl.tls.Tls;
import io.fluxccl.transport.tcp.PortRange;
import java.time.Duration;
import java.util.Optional;
import java.util.function.Consumer;

/**
 * The settings of {@link TcpNetPlugin}. Immutable; {@link #DEFAULT} has the defaults.
 *
 * @param interfaces selects the network interfaces that become devices
 * @param family the family of their addresses
 * @param ports the ports that listeners may use
 * @param streams the sockets of a connection that large messages are spread over, 1 to {@value
 *     #MAX_STREAMS}; with 1 there are no I/O threads
 * @param threads the I/O threads of the plugin, 1 or more
 * @param timeout the longest time that a request may take; zero for no limit
 * @param handshakeTimeout the longest time that a socket may take to send its hello. Connects and
 *     accepts may take as long, or {@code timeout} if that is longer
 * @param speedMbps the speed that devices report, in Mbit/s, or 0 for the speed that the system
 *     reports
 * @param latencyMicros the latency that devices report, in microseconds, or 0 if it is unknown; the
 *     same on all ranks
 * @param table where the table of connections is published
 * @param tls how sockets are encrypted, or empty if they are not
 */
public record TcpOptions(
    InterfaceFilter interfaces,
    Family family,
    PortRange ports,
    int streams,
    int threads,
    Duration timeout,
    Duration handshakeTimeout,
    int speedMbps,
    float latencyMicros,
    TableOptions table,
    Optional<Tls> tls) {
  /** The families of addresses. */
  public enum Family {
    /** An IPv4 address if there is one, else IPv6. */
    ANY,
    /** IPv4 only. */
    IPV4,
    /** IPv6 only. */
    IPV6
  }

  /** The most streams that a connection can have. */
  public static final int MAX_STREAMS = 32;

  private static final int MAX_THREADS = 64;
  private static final int CORES_PER_STREAM = 4;
  private static final int MOST_BY_ITSELF = 4;

  /** The defaults. */
  public static final TcpOptions DEFAULT =
      new TcpOptions(
          InterfaceFilter.parse(null),
          Family.ANY,
          PortRange.ANY,
          byCores(),
          byCores(),
          Duration.ofMinutes(10),
          Duration.ofSeconds(10),
          0,
          0,
          TableOptions.NONE,
          Optional.empty());

  /** Refuses values that are out of range. */
  public TcpOptions {
    if (streams < 1 || streams > MAX_STREAMS) {
      throw new InvalidUsage("streams=" + streams + "; give 1 to " + MAX_STREAMS);
    }
    if (threads < 1 || threads > MAX_THREADS) {
      throw new InvalidUsage("threads=" + threads + "; give 1 to " + MAX_THREADS);
    }
    if (timeout.isNegative() || handshakeTimeout.isNegative() || handshakeTimeout.isZero()) {
      throw new InvalidUsage(
          "timeout=" + timeout + " or handshakeTimeout=" + handshakeTimeout + " is too short");
    }
    if (speedMbps < 0) {
      throw new InvalidUsage("speed=" + speedMbps + " Mbit/s is negative");
    }
    if (!(latencyMicros >= 0)) {
      throw new InvalidUsage("latency=" + latencyMicros + " us; give 0 or more");
    }
  }

  /** Returns the longest time in nanoseconds that a connect or accept may take; 0 for no limit. */
  long connectNanos() {
    return timeout.isZero() ? 0 : Math.max(timeout.toNanos(), handshakeTimeout.toNanos());
  }

  private static int byCores() {
    int cores = Runtime.getRuntime().availableProcessors();
    return Math.max(1, Math.min(MOST_BY_ITSELF, cores / CORES_PER_STREAM));
  }

  /**
   * Returns the options that the environment sets: {@code FLUXCCL_NET_IFNAME}, {@code
   * FLUXCCL_NET_PORT_RANGE} or else {@code FLUXCCL_PORT_RANGE}, {@code FLUXCCL_NET_STREAMS}, {@code
   * FLUXCCL_NET_THREADS}, {@code FLUXCCL_NET_TIMEOUT} (seconds), {@code FLUXCCL_NET_SPEED}
   * (Mbit/s), {@code FLUXCCL_NET_LATENCY} (microseconds), {@code FLUXCCL_NET_TABLE}, {@code
   * FLUXCCL_NET_JMX}, and NCCL's {@code NCCL_SOCKET_IFNAME} and {@code NCCL_SOCKET_FAMILY}.
   *
   * @param settings of the process
   * @return the options
   * @throws InvalidUsage if a variable's value can't be parsed; it names the variable
   */
  public static TcpOptions fromEnvironment(Settings settings) {
    String interfaces = settings.firstSet("FLUXCCL_NET_IFNAME NCCL_SOCKET_IFNAME");
    int streams = settings.number("FLUXCCL_NET_STREAMS").orElse(DEFAULT.streams);
    return new TcpOptions(
        InterfaceFilter.parse(interfaces == null ? null : settings.text(interfaces)),
        family(settings.text("NCCL_SOCKET_FAMILY")),
        settings
            .word("FLUXCCL_NET_PORT_RANGE", PortRange::parse)
            .or(() -> settings.word("FLUXCCL_PORT_RANGE", PortRange::parse))
            .orElse(PortRange.ANY),
        streams,
        settings.number("FLUXCCL_NET_THREADS").orElse(Math.min(streams, DEFAULT.threads)),
        settings.seconds("FLUXCCL_NET_TIMEOUT").orElse(DEFAULT.timeout),
        DEFAULT.handshakeTimeout,
        settings.number("FLUXCCL_NET_SPEED").orElse(0),
        settings.decimal("FLUXCCL_NET_LATENCY").orElse(0f),
        TableOptions.fromEnvironment(settings),
        Tls.fromEnvironment());
  }

  private static Family family(String name) {
    if ("AF_INET".equals(name)) {
      return Family.IPV4;
    }
    return "AF_INET6".equals(name) ? Family.IPV6 : Family.ANY;
  }

  /**
   * Returns a copy that selects interfaces by a list in the syntax of {@code NCCL_SOCKET_IFNAME}.
   */
  public TcpOptions withInterfaces(String names) {
    return changed(draft -> draft.interfaces = InterfaceFilter.parse(names));
  }

  /** Returns a copy with another number of streams and of I/O threads. */
  public TcpOptions withStreams(int streams, int threads) {
    return changed(
        draft -> {
          draft.streams = streams;
          draft.threads = threads;
        });
  }

  /** Returns a copy whose listeners use ports from {@code low} to {@code high}, inclusive. */
  public TcpOptions withPorts(int low, int high) {
    return withPorts(new PortRange(low, high));
  }

  /** Returns a copy whose listeners use the ports of a range. */
  public TcpOptions withPorts(PortRange range) {
    return changed(draft -> draft.ports = range);
  }

  /** Returns a copy with another time limit for requests and another one for handshakes. */
  public TcpOptions withTimeouts(Duration timeout, Duration handshakeTimeout) {
    return changed(
        draft -> {
          draft.timeout = timeout;
          draft.handshakeTimeout = handshakeTimeout;
        });
  }

  /** Returns a copy that publishes the table of connections elsewhere. */
  public TcpOptions withTable(TableOptions table) {
    return changed(draft -> draft.table = table);
  }

  /** Returns a copy whose sockets are encrypted, or are not. */
  public TcpOptions withTls(Optional<Tls> tls) {
    return changed(draft -> draft.tls = tls);
  }

  private TcpOptions changed(Consumer<Draft> change) {
    Draft draft = new Draft(this);
    change.accept(draft);
    return new TcpOptions(
        draft.interfaces,
        family,
        draft.ports,
        draft.streams,
        draft.threads,
        draft.timeout,
        draft.handshakeTimeout,
        speedMbps,
        latencyMicros,
        draft.table,
        draft.tls);
  }

  /** The values that a copy can change. */
  private static final class Draft {
    private InterfaceFilter interfaces;
    private PortRange ports;
    private int streams;
    private int threads;
    private Duration timeout;
    private Duration handshakeTimeout;
    private TableOptions table;
    private Optional<Tls> tls;

    Draft(TcpOptions options) {
      interfaces = options.interfaces;
      ports = options.ports;
      streams = options.streams;
      threads = options.threads;
      timeout = options.timeout;
      handshakeTimeout = options.handshakeTimeout;
      table = options.table;
      tls = options.tls;
    }
  }
}

package io.fluxccl.bootstrap;

import io.fluxccl.InvalidUsage;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Where the root listens, as users write it: {@code host:port} or {@code interface:host:port}; an
 * IPv6 address stands in brackets.
 */
final class RootAddress {
  private static final Pattern FORM =
      Pattern.compile(
          "(?:([A-Za-z0-9_.@-]{1,64}):)?(\\[[0-9A-Fa-f:.%]+\\]|[^:\\[\\]\\s]+):(\\d{1,5})");
  private static final int MAX_LENGTH = 512;

  private final String networkInterface;
  private final String host;
  private final int port;

  private RootAddress(String networkInterface, String host, int port) {
    this.networkInterface = networkInterface;
    this.host = host;
    this.port = port;
  }

  /**
   * Reads an address.
   *
   * @throws InvalidUsage if it has another form or the port is over 65535
   */
  static RootAddress parse(String text) {
    Matcher matcher = text == null || text.length() > MAX_LENGTH ? null : FORM.matcher(text);
    if (matcher == null || !matcher.matches()) {
      throw new InvalidUsage(
          "address="
              + (text == null || text.length() <= MAX_LENGTH ? text : "(too long)")
              + "; give ip:port or interface:ip:port, for example eth0:10.0.0.1:29500");
    }
    int port = Integer.parseInt(matcher.group(3));
    if (port > 65535) {
      throw new InvalidUsage("address=" + text + ": the port is over 65535");
    }
    String host = matcher.group(2);
    boolean bracketed = host.charAt(0) == '[';
    return new RootAddress(
        matcher.group(1), bracketed ? host.substring(1, host.length() - 1) : host, port);
  }

  /** The name of the network interface to use, or null. */
  String networkInterface() {
    return networkInterface;
  }

  String host() {
    return host;
  }

  int port() {
    return port;
  }

  @Override
  public String toString() {
    return (networkInterface == null ? "" : networkInterface + ":")
        + (host.indexOf(':') >= 0 ? "[" + host + "]" : host)
        + ":"
        + port;
  }
}

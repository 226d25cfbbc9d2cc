package io.fluxccl.transport.ethernet;

import io.fluxccl.InvalidUsage;

/**
 * The ports that a listener may take.
 *
 * @param low the first; 0 with {@code high} 0 for any that is free
 * @param high the last
 */
record PortRange(int low, int high) {
  /** Any port that is free. */
  static final PortRange ANY = new PortRange(0, 0);

  private static final int MAX_PORT = 65535;

  PortRange {
    boolean any = low == 0 && high == 0;
    if (!any && (low < 1 || high > MAX_PORT || low > high)) {
      throw new InvalidUsage(
          "port range="
              + low
              + "-"
              + high
              + "; give low-high with 1 <= low <= high <= "
              + MAX_PORT);
    }
  }

  static PortRange fromEnvironment() {
    return parse(
        System.getProperty(
            EthernetTransport.PORT_RANGE_PROPERTY,
            System.getenv(EthernetTransport.PORT_RANGE_VARIABLE)));
  }

  /**
   * Reads {@code low-high}.
   *
   * @param text null or blank for any port
   */
  static PortRange parse(String text) {
    if (text == null || text.isBlank()) {
      return ANY;
    }
    String[] ends = text.trim().split("-", -1);
    try {
      if (ends.length == 2) {
        return new PortRange(Integer.parseInt(ends[0].trim()), Integer.parseInt(ends[1].trim()));
      }
    } catch (NumberFormatException e) {
      throw malformed(text, e);
    }
    throw malformed(text, null);
  }

  private static InvalidUsage malformed(String text, Throwable cause) {
    return new InvalidUsage(
        EthernetTransport.PORT_RANGE_VARIABLE + "=" + text + "; write it as 40000-40100", cause);
  }
}

package io.fluxccl.netplugin.tcp;

import io.fluxccl.InvalidUsage;

/**
 * The ports on which a listener may be.
 *
 * @param low the first; 0 with {@code high} 0 for any that is free
 * @param high the last
 */
public record PortRange(int low, int high) {
  /** Any port that is free. */
  public static final PortRange ANY = new PortRange(0, 0);

  private static final int MAX_PORT = 65535;

  /** Refuses what is no range. */
  public PortRange {
    boolean any = low == 0 && high == 0;
    if (!any && (low < 1 || high > MAX_PORT || low > high)) {
      throw new InvalidUsage(
          "port range=" + low + "-" + high + "; give low-high with 1 <= low <= high <= 65535");
    }
  }

  /**
   * Reads {@code low-high}.
   *
   * @param name whose value it is, for the error
   * @param text null or blank for any port
   * @return the range
   * @throws InvalidUsage if it is malformed
   */
  public static PortRange parse(String name, String text) {
    if (text == null || text.isBlank()) {
      return ANY;
    }
    String[] ends = text.trim().split("-", -1);
    try {
      if (ends.length == 2) {
        return new PortRange(Integer.parseInt(ends[0].trim()), Integer.parseInt(ends[1].trim()));
      }
    } catch (NumberFormatException e) {
      throw new InvalidUsage(name + "=" + text + "; write it as 40000-40100", e);
    }
    throw new InvalidUsage(name + "=" + text + "; write it as 40000-40100");
  }
}

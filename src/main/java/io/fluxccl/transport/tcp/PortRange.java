// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.tcp;

import io.fluxccl.InvalidUsage;

/**
 * The range of ports that listeners may use.
 *
 * @param low the first port; 0 with {@code high} 0 for any free port
 * @param high the last port
 */
public record PortRange(int low, int high) {
  /** Any free port. */
  public static final PortRange ANY = new PortRange(0, 0);

  private static final int MAX_PORT = 65535;

  /** Refuses ports that are not a range within 1 to 65535. */
  public PortRange {
    boolean any = low == 0 && high == 0;
    if (!any && (low < 1 || high > MAX_PORT || low > high)) {
      throw new InvalidUsage(
          "port range=" + low + "-" + high + "; give low-high with 1 <= low <= high <= 65535");
    }
  }

  /**
   * Parses {@code low-high}.
   *
   * @throws InvalidUsage if the text is malformed
   */
  public static PortRange parse(String text) {
    String[] ends = text.trim().split("-", -1);
    try {
      if (ends.length == 2) {
        return new PortRange(Integer.parseInt(ends[0].trim()), Integer.parseInt(ends[1].trim()));
      }
    } catch (NumberFormatException e) {
      throw new InvalidUsage("write it as 40000-40100", e);
    }
    throw new InvalidUsage("write it as 40000-40100");
  }
}

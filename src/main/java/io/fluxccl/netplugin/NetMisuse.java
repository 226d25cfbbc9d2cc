// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin;

import io.fluxccl.InvalidUsage;
import io.fluxccl.Text;

/**
 * A caller breaks a rule of the network interface: too many requests in flight, an object that is
 * closed or over, an argument that is out of range. For NCCL this is an internal error, because
 * NCCL makes these calls. Any other {@link InvalidUsage} of a network is a mistake of the user,
 * such as sizes that do not match or a setting that can't be parsed.
 */
public final class NetMisuse extends InvalidUsage {
  private static final long serialVersionUID = 1L;

  /**
   * @param message what was given and what is allowed
   */
  public NetMisuse(String message) {
    super(message);
  }

  /**
   * Creates one with a formatted message.
   *
   * @param format of {@link String#format}
   * @param arguments of the format
   */
  public static NetMisuse of(String format, Object... arguments) {
    return new NetMisuse(Text.of(format, arguments));
  }
}

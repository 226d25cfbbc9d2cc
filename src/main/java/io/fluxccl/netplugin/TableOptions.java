// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin;

import io.fluxccl.settings.Settings;
import java.nio.file.Path;

/**
 * The places where a network publishes the table of its connections. Immutable.
 *
 * @param file the file that the table is written to once a second, or null; the process number is
 *     appended to its name
 * @param jmx whether the table is published as a JMX bean
 */
public record TableOptions(Path file, boolean jmx) {
  /** The table is not published. */
  public static final TableOptions NONE = new TableOptions(null, false);

  /**
   * Returns the options that the environment sets: {@code FLUXCCL_NET_TABLE}, {@code
   * FLUXCCL_NET_JMX}.
   *
   * @param settings of the process
   * @return the options
   */
  public static TableOptions fromEnvironment(Settings settings) {
    return new TableOptions(
        settings.file("FLUXCCL_NET_TABLE").orElse(null), settings.flag("FLUXCCL_NET_JMX"));
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin;

import io.fluxccl.LocalFiles;
import java.nio.file.Path;
import java.util.function.UnaryOperator;

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
   * @param variable returns the value of an environment variable, or null
   * @return the options
   */
  public static TableOptions fromEnvironment(UnaryOperator<String> variable) {
    String file = variable.apply("FLUXCCL_NET_TABLE");
    return new TableOptions(
        file == null || file.isBlank() ? null : LocalFiles.path("FLUXCCL_NET_TABLE", file),
        "1".equals(variable.apply("FLUXCCL_NET_JMX")));
  }
}

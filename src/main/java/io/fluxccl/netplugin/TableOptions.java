package io.fluxccl.netplugin;

import java.nio.file.Path;
import java.util.function.UnaryOperator;

/**
 * Where a network shows its connections. Immutable.
 *
 * @param file where the table is written once a second, with the process's number behind the name,
 *     or null
 * @param jmx whether the table is a bean of JMX
 */
public record TableOptions(Path file, boolean jmx) {
  /** Nowhere. */
  public static final TableOptions NONE = new TableOptions(null, false);

  /**
   * What the environment asks for: {@code FLUXCCL_NET_TABLE}, {@code FLUXCCL_NET_JMX}.
   *
   * @param variable gives a variable's value, or null
   * @return the options
   */
  public static TableOptions fromEnvironment(UnaryOperator<String> variable) {
    String file = variable.apply("FLUXCCL_NET_TABLE");
    return new TableOptions(
        file == null || file.isBlank() ? null : Path.of(file),
        "1".equals(variable.apply("FLUXCCL_NET_JMX")));
  }
}

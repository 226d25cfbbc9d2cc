// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.benchmarks;

/** Some figures that are measured together, in a process of their own. */
interface FigureSection {
  /** How the command line calls it. */
  String name();

  /** One line for a person. */
  String description();

  /** Returns the number of GPUs that it needs. */
  int gpus();

  /** Returns the default time limit in seconds. */
  default int limit() {
    return 90;
  }

  /**
   * Measures and tells each figure as soon as it is known.
   *
   * @param figures where to
   */
  void measure(Figures figures) throws Exception;
}

package io.fluxccl.cli;

import java.util.List;

/** Learns how a run goes. Called from the thread of rank 0. */
interface PerfListener {
  /** Before anything is measured; {@code devices} has a line for each rank. */
  default void started(PerfPlan plan, List<String> devices) {}

  /** A row is ready. */
  void measured(PerfRow row);

  /** All rows were measured; {@code wrong} counts the wrong elements of all of them. */
  default void finished(long wrong) {}
}

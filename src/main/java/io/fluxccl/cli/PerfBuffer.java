package io.fluxccl.cli;

/** The two buffers that each rank has. */
enum PerfBuffer {
  /** Holds the input of what is done out of place. */
  INPUT,
  /** Holds the output, and all of what is done in place. */
  OUTPUT
}

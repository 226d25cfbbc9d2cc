package io.fluxccl.cli;

import java.util.OptionalLong;

/**
 * One measured row. Units are nccl-tests': decimal gigabytes.
 *
 * @param measured the case
 * @param nRanks of how many ranks
 * @param timeMicros of one all-reduce, averaged over the iterations and ranks
 * @param wrong how many elements of all ranks were wrong, or empty when none was checked
 */
record PerfRow(PerfPlan.Case measured, int nRanks, double timeMicros, OptionalLong wrong) {
  /** The algorithm's bandwidth: size over time, in GB/s. */
  double algorithmBandwidth() {
    return measured.bytes() / timeMicros / 1e3;
  }

  /** What a bus would have to carry: the algorithm's bandwidth times 2(n-1)/n, in GB/s. */
  double busBandwidth() {
    return algorithmBandwidth() * 2 * (nRanks - 1) / nRanks;
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import java.util.Map;
import java.util.OptionalDouble;
import java.util.OptionalLong;
import java.util.function.Function;

/**
 * One measured row, in the units of nccl-tests: decimal gigabytes.
 *
 * @param measured the case
 * @param nRanks how many ranks took part
 * @param byPlacement the measurements by placement, one at least
 */
record PerfRow(PerfCase measured, int nRanks, Map<BufferAliasing, Measurement> byPlacement) {
  /**
   * A case in one placement.
   *
   * @param algorithm its name; empty where there is no choice
   * @param micros of one call, averaged over the calls and ranks
   * @param wrong how many elements of all ranks were wrong, or empty when none was checked
   * @param peerMicros of one call of the library that this one is compared with
   */
  record Measurement(
      String algorithm, double micros, OptionalLong wrong, OptionalDouble peerMicros) {}

  /** Returns the size of the case. */
  long bytes() {
    return measured.bytes(nRanks);
  }

  /** Returns the time in the faster placement. */
  double micros() {
    return best(m -> OptionalDouble.of(m.micros())).orElseThrow();
  }

  /** Returns the peer's time in its faster placement, if it was measured. */
  OptionalDouble peerMicros() {
    return best(Measurement::peerMicros);
  }

  /** Returns the time divided by the peer's: less than 1 is faster. */
  OptionalDouble ratio() {
    OptionalDouble peer = peerMicros();
    return peer.isPresent() ? OptionalDouble.of(micros() / peer.getAsDouble()) : peer;
  }

  /** Returns how many elements were wrong in all placements; empty if none was checked. */
  OptionalLong wrong() {
    return byPlacement.values().stream().allMatch(m -> m.wrong().isEmpty())
        ? OptionalLong.empty()
        : OptionalLong.of(byPlacement.values().stream().mapToLong(m -> m.wrong().orElse(0)).sum());
  }

  /** Returns the size divided by the time, in GB/s. */
  double algorithmBandwidth(double micros) {
    return bytes() / micros / 1e3;
  }

  /** Returns the bandwidth that a bus would need, in GB/s. */
  double busBandwidth(double micros) {
    return algorithmBandwidth(micros) * measured.busFactor(nRanks);
  }

  private OptionalDouble best(Function<Measurement, OptionalDouble> time) {
    return byPlacement.values().stream()
        .map(time)
        .filter(OptionalDouble::isPresent)
        .mapToDouble(OptionalDouble::getAsDouble)
        .min();
  }
}

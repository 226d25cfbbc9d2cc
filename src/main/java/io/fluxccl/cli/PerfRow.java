package io.fluxccl.cli;

import java.util.Map;
import java.util.Optional;
import java.util.OptionalDouble;
import java.util.OptionalLong;
import java.util.function.Function;

/**
 * One measured row. Units are nccl-tests': decimal gigabytes.
 *
 * @param measured the case
 * @param nRanks of how many ranks
 * @param byPlacement what was measured in each placement, one at least
 */
record PerfRow(PerfCase measured, int nRanks, Map<Placement, Measurement> byPlacement) {
  /**
   * A case in one placement.
   *
   * @param algorithm that did it; empty where there is no choice
   * @param micros of one call, averaged over the calls and ranks
   * @param wrong how many elements of all ranks were wrong, or empty when none was checked
   * @param peerMicros of one call of the library that this one is compared with
   */
  record Measurement(
      String algorithm, double micros, OptionalLong wrong, OptionalDouble peerMicros) {}

  /** What was measured in a placement. */
  Optional<Measurement> in(Placement placement) {
    return Optional.ofNullable(byPlacement.get(placement));
  }

  /** The case's bytes. */
  long bytes() {
    return measured.bytes(nRanks);
  }

  /** The time in the faster placement. */
  double micros() {
    return best(m -> OptionalDouble.of(m.micros())).orElseThrow();
  }

  /** The peer's time in its faster placement, if it was measured. */
  OptionalDouble peerMicros() {
    return best(Measurement::peerMicros);
  }

  /** The time over the peer's: less than 1 is faster. */
  OptionalDouble ratio() {
    OptionalDouble peer = peerMicros();
    return peer.isPresent() ? OptionalDouble.of(micros() / peer.getAsDouble()) : peer;
  }

  /** How many elements were wrong in all placements, or empty when none was checked. */
  OptionalLong wrong() {
    return byPlacement.values().stream().allMatch(m -> m.wrong().isEmpty())
        ? OptionalLong.empty()
        : OptionalLong.of(byPlacement.values().stream().mapToLong(m -> m.wrong().orElse(0)).sum());
  }

  /** The algorithm's bandwidth: size over time, in GB/s. */
  double algorithmBandwidth(double micros) {
    return bytes() / micros / 1e3;
  }

  /** What a bus would have to carry, in GB/s. */
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

package io.fluxccl.collective;

import io.fluxccl.InvalidUsage;
import java.util.ArrayList;
import java.util.EnumMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.stream.Collectors;

/**
 * Chooses the algorithm for a call: the one the user named, if it can; what a tuning file says; the
 * one that estimates the least time. The same on every rank, because all of that is.
 */
final class AlgorithmSelector {
  private final List<CollectiveAlgorithm> algorithms = new ArrayList<>();
  private final Map<Collective, List<Tuning.Rule>> rules = new EnumMap<>(Collective.class);

  // Replaced as a whole.
  private volatile Map<Collective, String> chosen;

  /**
   * A selector.
   *
   * @throws InvalidUsage if the options or the tuning file name an algorithm that there is not
   */
  AlgorithmSelector(
      List<AlgorithmSet> sets, CollectivesOptions options, Tuning tuning, RankTopology topology) {
    sets.forEach(set -> algorithms.addAll(set.algorithms()));
    this.chosen = options.algorithms();
    chosen.forEach((collective, name) -> require(collective, name, ""));
    for (Collective collective : Collective.values()) {
      List<Tuning.Rule> here = tuning.rulesFor(topology, collective);
      here.forEach(rule -> require(collective, rule.algorithm(), tuning.origin(rule)));
      rules.put(collective, here);
    }
  }

  private void require(Collective collective, String name, String origin) {
    // A job of one rank has no algorithms, and needs none.
    if (!algorithms.isEmpty() && byName(name) == null) {
      throw new InvalidUsage(
          origin + "algorithm=" + name + " for " + collective.label() + " is none of " + names());
    }
  }

  private String names() {
    return algorithms.stream().map(CollectiveAlgorithm::name).collect(Collectors.joining(", "));
  }

  private CollectiveAlgorithm byName(String name) {
    for (int i = 0; i < algorithms.size(); i++) {
      if (algorithms.get(i).name().equals(name)) {
        return algorithms.get(i);
      }
    }
    return null;
  }

  /**
   * Uses an algorithm from now on, wherever it can.
   *
   * @param name of it; empty: chooses by itself again
   * @throws InvalidUsage if there is none of that name
   */
  synchronized void prefer(Collective collective, Optional<String> name) {
    name.ifPresent(wanted -> require(collective, wanted, ""));
    Map<Collective, String> changed = new EnumMap<>(Collective.class);
    changed.putAll(chosen);
    if (name.isPresent()) {
      changed.put(collective, name.get());
    } else {
      changed.remove(collective);
    }
    chosen = changed;
  }

  /** The names of those that can do a call, in the same order on every rank. */
  List<String> supporting(BoundCall call) {
    return algorithms.stream()
        .filter(algorithm -> algorithm.supports(call))
        .map(CollectiveAlgorithm::name)
        .toList();
  }

  /**
   * The algorithm for a call.
   *
   * @throws InvalidUsage if none supports it
   */
  CollectiveAlgorithm choose(BoundCall call) {
    String wanted = chosen.get(call.call().collective());
    CollectiveAlgorithm named = wanted == null ? null : byName(wanted);
    if (named != null && named.supports(call)) {
      return named;
    }
    Tuning.Rule rule = Tuning.find(rules.get(call.call().collective()), call);
    CollectiveAlgorithm tuned = rule == null ? null : byName(rule.algorithm());
    if (tuned != null && tuned.supports(call)) {
      return tuned;
    }
    CollectiveAlgorithm best = null;
    double least = Double.POSITIVE_INFINITY;
    for (int i = 0; i < algorithms.size(); i++) {
      CollectiveAlgorithm algorithm = algorithms.get(i);
      if (algorithm.supports(call)) {
        double estimate = algorithm.estimate(call);
        if (best == null || estimate < least) {
          best = algorithm;
          least = estimate;
        }
      }
    }
    if (best == null) {
      throw new InvalidUsage(
          call.call()
              + " on rank "
              + call.rank()
              + ": no algorithm supports it; there are "
              + names());
    }
    return best;
  }
}

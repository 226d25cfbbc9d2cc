// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.testkit;

import io.fluxccl.Experimental;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.stream.Collectors;

/**
 * The faults of a test's network, for {@link LocalRanksOptions#withFaults}. A seed always gives the
 * same plan, so a failed test can be repeated by its seed.
 *
 * <p>Faults happen to ETHERNET, the network between {@linkplain LocalRanks#ofHosts hosts} of a test
 * and of {@link io.fluxccl.collective.CollectivesOptions#withTransport}. Within a host ranks share
 * memory, which has no faults.
 *
 * @param name what the plan was made of, for messages
 * @param faults in no order
 */
@Experimental
public record FaultPlan(String name, List<Fault> faults) {
  private static final int MOST_FAULTS = 3;
  private static final int MESSAGES = 60;
  private static final int BYTES = 200_000;

  /** Copies the faults. */
  public FaultPlan {
    faults = List.copyOf(faults);
  }

  /** Returns a plan of those faults. */
  public static FaultPlan of(Fault... faults) {
    return new FaultPlan("faults", List.of(faults));
  }

  /**
   * Draws one to three faults of any kinds, among the first messages of any ranks.
   *
   * @param seed decides them
   * @param nRanks how many ranks the job has, 2 or more
   */
  public static FaultPlan seeded(long seed, int nRanks) {
    return seeded(seed, nRanks, FaultKind.values());
  }

  /** Draws faults as {@link #seeded(long, int)}, of some kinds only. */
  public static FaultPlan seeded(long seed, int nRanks, FaultKind... kinds) {
    Random random = new Random(seed);
    random.nextLong(); // the first numbers of neighbouring seeds are alike
    List<Fault> faults = new ArrayList<>();
    int count = 1 + random.nextInt(MOST_FAULTS);
    for (int i = 0; i < count; i++) {
      int from = random.nextInt(nRanks);
      int to = (from + 1 + random.nextInt(nRanks - 1)) % nRanks;
      FaultKind kind = kinds[random.nextInt(kinds.length)];
      Fault.Unit unit = random.nextInt(4) == 0 ? Fault.Unit.BYTES : Fault.Unit.MESSAGES;
      int at = random.nextInt(unit == Fault.Unit.BYTES ? BYTES : MESSAGES);
      faults.add(new Fault(kind, from, to, 0, unit, at, random.nextInt(1 << 20)));
    }
    return new FaultPlan("seed " + seed, faults);
  }

  @Override
  public String toString() {
    return name + faults.stream().map(Fault::toString).collect(Collectors.joining("; ", " (", ")"));
  }
}

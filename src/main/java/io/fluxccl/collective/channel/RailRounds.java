package io.fluxccl.collective.channel;

import static io.fluxccl.collective.channel.PipeLayout.SINGLE_DEPTH;

/**
 * Collectives in which every rank has a share for every rank. Each piece takes a round for each
 * host, in which the hosts pair up: this one with its partner, or with itself. In a round goes what
 * concerns ranks of the two hosts.
 *
 * <pre>
 *   step t    give what belongs to round t
 *             pass it on, between hosts or inside, in round t - SINGLE_DEPTH
 *             finish it in round t - 2 SINGLE_DEPTH
 * </pre>
 *
 * <p>In a round no more than one piece goes through a pipe, hence {@link PipeLayout#SINGLE_DEPTH}.
 */
abstract class RailRounds extends HostHierarchical {
  private long rounds;

  RailRounds(HostLane lane, Hierarchy hierarchy) {
    super(lane, hierarchy);
  }

  /** The most bytes of a piece. */
  long mostBytes() {
    return lane.layout.slotBytes();
  }

  @Override
  final long begin() {
    rounds = cut(what.size(), mostBytes()) * rail.length;
    return rounds == 0 ? 0 : rounds + 2 * SINGLE_DEPTH;
  }

  @Override
  final boolean step(long step) {
    return (!has(step) || give(number(step), partner(step)))
        && (!has(step - SINGLE_DEPTH)
            || pass(number(step - SINGLE_DEPTH), partner(step - SINGLE_DEPTH)))
        && (!has(step - 2 * SINGLE_DEPTH)
            || finish(
                number(step - 2 * SINGLE_DEPTH),
                partner(step - 2 * SINGLE_DEPTH),
                (step - 2 * SINGLE_DEPTH) % rail.length == rail.length - 1));
  }

  private boolean has(long round) {
    return round >= 0 && round < rounds;
  }

  private long number(long round) {
    return round / rail.length;
  }

  private int partner(long round) {
    return Math.floorMod((int) (round % rail.length) - host, rail.length);
  }

  abstract boolean give(long number, int partner);

  abstract boolean pass(long number, int partner);

  /**
   * Takes what comes.
   *
   * @param isLast whether this is the piece's last round
   */
  abstract boolean finish(long number, int partner, boolean isLast);
}

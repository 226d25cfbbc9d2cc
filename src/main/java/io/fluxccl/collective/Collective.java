package io.fluxccl.collective;

import java.util.Locale;

/** The operations in which several ranks take part. */
public enum Collective {
  /** Everybody gets the combination of all inputs. */
  ALL_REDUCE,
  /** Everybody gets all inputs, one behind the other in rank order. */
  ALL_GATHER,
  /** Each rank gets its part of the combination of all inputs. */
  REDUCE_SCATTER,
  /** Everybody gets the root's input. */
  BROADCAST,
  /** The root gets the combination of all inputs. */
  REDUCE,
  /** Part j of rank i's input becomes part i of rank j's output. */
  ALL_TO_ALL,
  /** The same with parts of any sizes. */
  ALL_TO_ALL_V,
  /** The root gets all inputs, one behind the other in rank order. */
  GATHER,
  /** Each rank gets its part of the root's input. */
  SCATTER,
  /** One rank sends, another receives; a rank may do both at once, with different peers. */
  SEND_RECEIVE,
  /** Nobody is done before everybody has begun. */
  BARRIER;

  /** The name in messages and on the command line, for example {@code all-reduce}. */
  public String label() {
    return name().toLowerCase(Locale.ROOT).replace('_', '-');
  }

  /** Whether values are combined, so that the type and a {@link io.fluxccl.ReduceOp} matter. */
  public boolean reduces() {
    return this == ALL_REDUCE || this == REDUCE_SCATTER || this == REDUCE;
  }

  /** Whether one rank is the root. */
  public boolean hasRoot() {
    return this == BROADCAST || this == REDUCE || this == GATHER || this == SCATTER;
  }

  /**
   * Whether it may depend on registration how it is done. Every rank then has the same buffers, and
   * all of them or none are registered. Not where a rank may have nothing to send or to get, and
   * where the root's share may lie in its large buffer, which others have not registered.
   */
  public boolean isChosenByRegistration() {
    return switch (this) {
      case ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST, REDUCE, ALL_TO_ALL -> true;
      case ALL_TO_ALL_V, GATHER, SCATTER, SEND_RECEIVE, BARRIER -> false;
    };
  }

  /**
   * Whether every rank takes part. In {@link #SEND_RECEIVE} only those that send to each other do,
   * so it must not disturb what other ranks are doing meanwhile.
   */
  public boolean isByAll() {
    return this != SEND_RECEIVE;
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatCode;

import io.fluxccl.bootstrap.JoinPromises.Violation;
import io.fluxccl.bootstrap.JoinRules.Ballot;
import io.fluxccl.bootstrap.JoinRules.Electorate.Count;
import io.fluxccl.bootstrap.Roster.Term;
import io.fluxccl.testing.Rounds;
import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.function.BiFunction;
import java.util.function.IntPredicate;
import java.util.stream.LongStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/**
 * The join protocol in simulated worlds; see {@link JoinModel}. Each seed is one world. A failure
 * names its seed: run that one with {@code -Dfluxccl.test.seed}.
 */
class JoinModelTest {
  private static final int FEW = 2_000;
  private static final int MANY = 100_000;

  /** Deliberate bugs, one or more for each rule of {@link JoinRules}. The model must find each. */
  enum Mutant {
    FIXED_COORDINATOR {
      @Override
      JoinRules rules(Duration interval, Duration liveness) {
        return new JoinRules(interval, liveness) {
          @Override
          int coordinator(Roster base, IntPredicate isAvailable) {
            return 0;
          }
        };
      }
    },
    NO_LEASE {
      @Override
      JoinRules rules(Duration interval, Duration liveness) {
        return new JoinRules(interval, liveness) {
          @Override
          boolean isSilent(long nanos) {
            return false;
          }
        };
      }
    },
    NO_FENCE {
      @Override
      JoinRules rules(Duration interval, Duration liveness) {
        return new JoinRules(interval, liveness) {
          @Override
          Ballot vote(Ballot current, Ballot request) {
            return request.hasRoster()
                ? request
                : new Ballot(request.promised(), current.accepted(), current.roster());
          }
        };
      }
    },
    FORGOTTEN_PROPOSAL {
      @Override
      JoinRules rules(Duration interval, Duration liveness) {
        return new JoinRules(interval, liveness) {
          @Override
          Ballot binding(Collection<Ballot> reports) {
            return Ballot.EMPTY;
          }
        };
      }
    },
    ANY_SIDE {
      @Override
      JoinRules rules(Duration interval, Duration liveness) {
        return new JoinRules(interval, liveness) {
          @Override
          boolean mayForm(Count count) {
            return true;
          }
        };
      }
    },
    BOTH_HALVES {
      @Override
      JoinRules rules(Duration interval, Duration liveness) {
        return new JoinRules(interval, liveness) {
          @Override
          boolean mayForm(Count count) {
            return count.isQuorum() || 2 * count.votes() == count.total();
          }
        };
      }
    },
    DEAD_DO_NOT_COUNT {
      @Override
      JoinRules rules(Duration interval, Duration liveness) {
        return new JoinRules(interval, liveness) {
          @Override
          boolean mayForm(Count count) {
            int total = count.votes() + count.unknown().size();
            return 2 * count.votes() > total
                || (2 * count.votes() == total && count.hasLowestRank());
          }
        };
      }
    },
    LOYAL_NEWCOMER {
      @Override
      JoinRules rules(Duration interval, Duration liveness) {
        return new JoinRules(interval, liveness) {
          @Override
          boolean prefers(Term offered, Term followed) {
            return false;
          }
        };
      }
    };

    abstract JoinRules rules(Duration interval, Duration liveness);
  }

  private static String violation(long seed, BiFunction<Duration, Duration, JoinRules> rules) {
    try {
      new JoinModel(seed, rules, false).run();
      return "";
    } catch (Violation e) {
      return e.getMessage();
    }
  }

  @Test
  void shouldKeepItsPromisesInEveryWorld() {
    for (long seed = Rounds.SEED; seed < Rounds.SEED + Rounds.of(FEW, MANY); seed++) {
      JoinModel world = new JoinModel(seed, JoinRules::new, false);
      assertThatCode(world::run).as("seed %s: %s", seed, world.shape()).doesNotThrowAnyException();
    }
  }

  @ParameterizedTest
  @EnumSource(Mutant.class)
  void shouldFindABugInEachRule(Mutant mutant) {
    assertThat(LongStream.range(0, FEW).mapToObj(seed -> violation(seed, mutant::rules)))
        .as("violations within %s seeds", FEW)
        .anyMatch(found -> !found.isEmpty());
  }

  @Test
  void shouldRepeatAWorldFromItsSeed() {
    List<String> histories =
        LongStream.of(7, 7)
            .mapToObj(
                seed -> {
                  JoinModel world = new JoinModel(seed, JoinRules::new, true);
                  world.run();
                  return world.history();
                })
            .toList();
    assertThat(histories.get(0)).isNotEmpty().isEqualTo(histories.get(1));
  }
}

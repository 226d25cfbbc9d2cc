// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.dataparallel;

import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.collective.NamedCollectives;
import io.fluxccl.group.JoinOptions;
import io.fluxccl.group.RankGroup;
import java.io.IOException;
import java.io.UncheckedIOException;
import reactor.core.publisher.Mono;

/** A job that trains in one generation after another, until one of them ends without a failure. */
final class HealingJob {
  private HealingJob() {}

  /** The training of a rank in one generation. */
  interface Training {
    void train(RankGroup group, NamedCollectives named) throws IOException;
  }

  /**
   * Runs this process's rank. If its training fails by itself, for example because the disk is
   * full, this process ends, and the other ranks wait for a replacement instead of for its calls.
   */
  static void run(JoinOptions options, Training training) {
    RankGroup.generations(options).doOnNext(group -> runIn(group, training)).blockLast();
  }

  private static void runIn(RankGroup group, Training training) {
    try (NamedCollectives named = Mono.fromFuture(group.collectives()::named).block()) {
      // If it throws, this rank aborts first, so that all others fail with its error.
      group.run(same -> train(same, named, training));
    } catch (FluxCclException e) {
      System.out.println("this generation ended: " + e.getMessage());
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  private static void train(RankGroup group, NamedCollectives named, Training training)
      throws IOException {
    try {
      training.train(group, named);
    } catch (InvalidUsage e) {
      if (group.communicator().failure() == null) {
        throw new IllegalStateException(e); // this rank's own, so the next generation fails, too
      }
      throw e;
    }
  }
}

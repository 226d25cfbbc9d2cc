// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.group;

import io.fluxccl.FluxCclException;
import io.fluxccl.bootstrap.Bootstrap;
import io.fluxccl.collective.Collectives;
import io.fluxccl.collective.Pipeline;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.device.Device;
import java.util.concurrent.CompletableFuture;

/**
 * One rank of a job: a {@link RankGroup} in production, an {@code io.fluxccl.testkit.LocalRank} in
 * a test. Code that takes a {@code Rank} is tested as it ships.
 */
public interface Rank {
  /** Returns this rank, from 0. */
  int rank();

  /** Returns how many ranks the job has. */
  int nRanks();

  /** Returns the bootstrap: messages, gathers and barriers between hosts. */
  Bootstrap bootstrap();

  /** Returns the device that holds this rank's memory and runs its kernels. */
  Device device();

  /** Returns the communicator: connections and memory between the ranks. */
  Communicator communicator();

  /** Returns the collectives of all ranks, connected and ready; closed with the rank. */
  Collectives collectives();

  /** {@link Collectives#pipeline} of {@link #collectives}. */
  default Pipeline pipeline() {
    return collectives().pipeline();
  }

  /** {@link Communicator#failed()} of {@link #communicator}. */
  default CompletableFuture<FluxCclException> failed() {
    return communicator().failed();
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.cudaipc;

import io.fluxccl.transport.ConnectedRanks;
import java.util.List;

/** Two ranks of this process, each with a GPU. */
final class IpcRanks extends ConnectedRanks {
  private final List<IpcRank> ranks;

  IpcRanks(IpcRank zero, IpcRank one) {
    super(List.of(zero.environment, one.environment));
    ranks = List.of(zero, one);
  }

  @Override
  public CudaIpcContext context(int rank) {
    return ranks.get(rank).context;
  }
}

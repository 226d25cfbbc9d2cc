// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.communicator;

import io.fluxccl.bootstrap.Bootstrap;
import io.fluxccl.concurrent.SpinPolicy;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.IntStream;

/**
 * The number of processes on this host that are ranks of one open communicator. The largest number
 * of all open communicators counts, since this process may be in several jobs. Thread-safe.
 */
final class HostProcessCount implements AutoCloseable {
  // Guarded by itself.
  private static final List<HostProcessCount> OPEN = new ArrayList<>();

  private final int processes;

  private HostProcessCount(int processes) {
    this.processes = processes;
  }

  /** Adds the processes of a job on this host. */
  static HostProcessCount add(Bootstrap bootstrap) {
    long host = bootstrap.hostHash(bootstrap.rank());
    long processes =
        IntStream.range(0, bootstrap.nRanks())
            .filter(rank -> bootstrap.hostHash(rank) == host)
            .mapToLong(bootstrap::processHash)
            .distinct()
            .count();
    return add((int) processes);
  }

  static HostProcessCount add(int processes) {
    HostProcessCount load = new HostProcessCount(processes);
    synchronized (OPEN) {
      OPEN.add(load);
      update();
    }
    return load;
  }

  /** Idempotent. */
  @Override
  public void close() {
    synchronized (OPEN) {
      OPEN.remove(this);
      update();
    }
  }

  private static void update() {
    SpinPolicy.setProcessesOnHost(OPEN.stream().mapToInt(load -> load.processes).max().orElse(1));
  }
}

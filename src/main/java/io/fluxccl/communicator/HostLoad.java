package io.fluxccl.communicator;

import io.fluxccl.concurrent.SpinPolicy;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * How many processes of this host wait as this one does: the most that any of its open
 * communicators knows of, since this process may be in several jobs. Thread-safe.
 */
final class HostLoad {
  // Guarded by itself.
  private static final List<Share> SHARES = new ArrayList<>();

  private HostLoad() {}

  /** What one communicator knows, until it is closed. */
  static final class Share {
    private final int processes;
    private final AtomicBoolean removed = new AtomicBoolean();

    private Share(int processes) {
      this.processes = processes;
    }

    /** Idempotent. */
    void remove() {
      if (removed.compareAndSet(false, true)) {
        synchronized (SHARES) {
          SHARES.remove(this);
          update();
        }
      }
    }
  }

  static Share add(int processes) {
    Share share = new Share(processes);
    synchronized (SHARES) {
      SHARES.add(share);
      update();
    }
    return share;
  }

  private static void update() {
    SpinPolicy.setProcessesOnHost(
        SHARES.stream().mapToInt(share -> share.processes).max().orElse(1));
  }
}

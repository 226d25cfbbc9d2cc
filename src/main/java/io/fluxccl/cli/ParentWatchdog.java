// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import io.fluxccl.settings.Settings;
import java.time.Duration;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.locks.LockSupport;

/**
 * Ends this process when the launcher that FLUXCCL_PARENT_PID names has ended, because a launcher
 * that is killed can't end its ranks itself.
 */
final class ParentWatchdog {
  private static final Duration PERIOD = Duration.ofMillis(500);
  private static final Duration SHUTDOWN_GRACE = Duration.ofSeconds(5);

  private final long parent;
  private final boolean direct;

  private ParentWatchdog(long parent) {
    this.parent = parent;
    this.direct = isOurParent();
  }

  /** Watches the launcher, if the environment names one; ends this process when it has ended. */
  static void start(Map<String, String> environment) {
    Optional<Integer> pid = Settings.of(environment).number(RankVariables.PARENT);
    if (pid.isPresent()) {
      ParentWatchdog watch = new ParentWatchdog(pid.get());
      if (!watch.parentRuns()) {
        System.exit(ExitCode.ORPHANED);
      }
      daemon(watch::watch, "fluxccl-parent-watch");
    }
  }

  private void watch() {
    while (parentRuns()) {
      LockSupport.parkNanos(PERIOD.toNanos());
    }
    // Shutdown hooks have a while to clean up.
    daemon(() -> System.exit(ExitCode.ORPHANED), "fluxccl-orphan-exit");
    LockSupport.parkNanos(SHUTDOWN_GRACE.toNanos());
    Runtime.getRuntime().halt(ExitCode.ORPHANED);
  }

  /**
   * Returns whether the launcher runs. A zombie looks alive, but its children have a new parent.
   */
  private boolean parentRuns() {
    return direct
        ? isOurParent()
        : ProcessHandle.of(parent).map(ProcessHandle::isAlive).orElse(false);
  }

  private boolean isOurParent() {
    return ProcessHandle.current().parent().map(handle -> handle.pid() == parent).orElse(false);
  }

  private static void daemon(Runnable task, String name) {
    Thread thread = new Thread(task, name);
    thread.setDaemon(true);
    thread.start();
  }
}

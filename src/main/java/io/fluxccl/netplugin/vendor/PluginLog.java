// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.vendor;

import io.fluxccl.concurrent.NonblockingThread;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Forwards the log lines of plugins to SLF4J, on a daemon thread that lives while a plugin is
 * loaded. NCCL's warnings become warnings and its version lines become info. Its info lines, which
 * NCCL shows only on demand, become debug. A line that this logger would not show is dropped by the
 * native code.
 */
final class PluginLog {
  private static final Logger LOGGER = LoggerFactory.getLogger(NativeNetPlugin.class);
  private static final int WAIT_MILLIS = 500;

  private static final int NO_LINE = -1;
  private static final int VERSION = 1;
  private static final int WARN = 2;
  private static final int INFO = 3;
  private static final int ABORT = 4;
  private static final int TRACE = 5;

  /** The number of plugins that are loaded; guarded by the class. */
  private static int users;

  private static Thread thread;

  private PluginLog() {}

  /** Starts the thread for the first plugin. Called before a plugin is loaded. */
  static synchronized void enter() {
    users++;
    if (thread == null) {
      thread = new NonblockingThread(PluginLog::run, "fluxccl-net-log");
      thread.start();
    }
  }

  /** Removes a plugin; the thread ends after the last one. Called after a plugin was closed. */
  static synchronized void exit() {
    users--;
  }

  /** Returns the least important of NCCL's levels that the logger shows. */
  static int level() {
    if (LOGGER.isTraceEnabled()) {
      return TRACE;
    }
    if (LOGGER.isDebugEnabled()) {
      return INFO;
    }
    return LOGGER.isWarnEnabled() ? WARN : 0;
  }

  private static void run() {
    byte[][] texts = new byte[3][];
    int[] numbers = new int[2];
    while (true) {
      int level = NetPluginCalls.nextLogLine(texts, numbers, WAIT_MILLIS);
      if (level == NO_LINE) {
        if (ended()) {
          return;
        }
      } else {
        log(level, texts, numbers);
      }
    }
  }

  private static synchronized boolean ended() {
    if (users == 0) {
      thread = null;
      return true;
    }
    return false;
  }

  private static void log(int level, byte[][] texts, int[] numbers) {
    if (numbers[1] > 0) {
      LOGGER.warn("{} log lines of network plugins were lost: too many at once", numbers[1]);
    }
    String plugin = PluginSearch.text(texts[0]);
    String place = PluginSearch.text(texts[1]) + ":" + numbers[0];
    String text = PluginSearch.text(texts[2]).strip();
    switch (level) {
      case VERSION -> LOGGER.info("{}: {} ({})", plugin, text, place);
      case WARN -> LOGGER.warn("{}: {} ({})", plugin, text, place);
      case INFO, ABORT -> LOGGER.debug("{}: {} ({})", plugin, text, place);
      case TRACE -> LOGGER.trace("{}: {} ({})", plugin, text, place);
      default -> {}
    }
  }
}

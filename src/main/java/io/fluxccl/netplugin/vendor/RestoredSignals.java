// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.vendor;

import java.util.ArrayList;
import java.util.List;
import org.slf4j.LoggerFactory;

/**
 * Logs the signals that a plugin has taken from the JVM while it was loaded or initialized, and
 * that native code has given back.
 */
final class RestoredSignals {
  private RestoredSignals() {}

  /** Logs the signals given back since the last call, if any. */
  static void log(String plugin) {
    long bits = NetPluginCalls.keptSignals();
    List<Integer> numbers = new ArrayList<>();
    for (int number = 1; number <= Long.SIZE; number++) {
      if ((bits >>> number - 1 & 1) != 0) {
        numbers.add(number);
      }
    }
    if (!numbers.isEmpty()) {
      LoggerFactory.getLogger(NativeNetPlugin.class)
          .info("{} has taken the signals {}; this process keeps its handlers", plugin, numbers);
    }
  }
}

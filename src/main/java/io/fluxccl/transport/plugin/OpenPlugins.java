// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.plugin;

import io.fluxccl.concurrent.Lifecycle;
import io.fluxccl.netplugin.NetPlugin;
import java.util.HashMap;
import java.util.Map;
import java.util.function.Supplier;

/**
 * The open plugins of this process. All its communicators share them, because most plugins can be
 * initialized only once. Thread-safe.
 */
final class OpenPlugins {
  /** Guarded by the class. */
  private static final Map<String, Entry> ENTRIES = new HashMap<>();

  private OpenPlugins() {}

  private static final class Entry {
    final NetPlugin plugin;
    int users;

    Entry(NetPlugin plugin) {
      this.plugin = plugin;
    }
  }

  /** One use of a plugin. Closing the last lease closes the plugin. */
  static final class Lease implements AutoCloseable {
    private final String key;
    private final NetPlugin plugin;
    private final Lifecycle lifecycle = new Lifecycle(this);

    private Lease(String key, NetPlugin plugin) {
      this.key = key;
      this.plugin = plugin;
    }

    NetPlugin plugin() {
      return plugin;
    }

    @Override
    public void close() {
      synchronized (OpenPlugins.class) {
        if (lifecycle.beginClose()) {
          giveBack(key);
        }
      }
    }
  }

  /**
   * Returns a lease of a plugin, and opens the plugin unless it is open.
   *
   * @param key identifies the plugin and the way it is opened
   * @param opener opens the plugin
   */
  static synchronized Lease lease(String key, Supplier<NetPlugin> opener) {
    Entry entry = ENTRIES.get(key);
    if (entry == null) {
      entry = new Entry(opener.get());
      ENTRIES.put(key, entry);
    }
    entry.users++;
    return new Lease(key, entry.plugin);
  }

  private static void giveBack(String key) {
    Entry entry = ENTRIES.get(key);
    if (--entry.users == 0) {
      ENTRIES.remove(key);
      entry.plugin.close();
    }
  }
}

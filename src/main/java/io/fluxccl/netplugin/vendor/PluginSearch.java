// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.vendor;

import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.NativeLibrary;
import io.fluxccl.Text;
import io.fluxccl.TransportFailure;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

/** Finds a plugin's library as NCCL does, and the newest version of the interface that it has. */
final class PluginSearch {
  private static final String PREFIX = "libnccl-net";
  private static final String SUFFIX = ".so";
  private static final String ITSELF =
      "is FluxCCL's own plugin for NCCL, which would load FluxCCL into itself; without a library"
          + " (NCCL_NET_PLUGIN=none) FluxCCL's networks are used directly";
  private static final String NO_PLUGIN =
      Text.of(
          "has no complete ncclNetPlugin_v%s to _v%s",
          NetPluginCalls.OLDEST_VERSION, NetPluginCalls.NEWEST_VERSION);

  private PluginSearch() {}

  /**
   * A plugin that was found in a library.
   *
   * @param library the library, to be closed by the caller
   * @param plugin the plugin, to be finished before the library is closed
   * @param version the version of the interface
   * @param path the library's file
   */
  record Found(long library, long plugin, int version, String path) {}

  /**
   * Returns the names to open, in order. Commas separate several. A name that is neither a path nor
   * a library's is tried as it is and as a suffix.
   *
   * @param wanted the plugin, as in {@code NCCL_NET_PLUGIN}; null or empty for the default
   */
  static List<String> candidates(String wanted) {
    if (wanted == null || wanted.isBlank()) {
      return List.of(PREFIX + SUFFIX);
    }
    List<String> names = new ArrayList<>();
    for (String part : wanted.split(",")) {
      String name = part.strip();
      if (name.isEmpty()) {
        continue;
      }
      names.add(name);
      boolean isLibrary = name.startsWith("lib") && name.endsWith(SUFFIX);
      if (name.indexOf('/') < 0 && !isLibrary) {
        names.add(PREFIX + "-" + name + SUFFIX);
      }
    }
    return names;
  }

  /**
   * Opens the first library that has a plugin.
   *
   * @throws TransportFailure if there is none; it names what was searched
   */
  static Found open(String wanted) {
    NativeLibrary.require("a network plugin");
    StringBuilder searched = new StringBuilder();
    for (String name : candidates(wanted)) {
      if (name.indexOf(0) >= 0) {
        throw new InvalidUsage("a NUL character in the network plugin's name: " + name);
      }
      byte[][] problem = new byte[1][];
      long library = NetPluginCalls.openLibrary(bytes(name), problem);
      RestoredSignals.log(name);
      if (library == 0) {
        searched.append("; ").append(name).append(": ").append(text(problem[0]));
        continue;
      }
      // Checked before any call of the library: FluxCCL's own library would load FluxCCL again.
      boolean itself = NetPluginCalls.isFluxCcl(library);
      Found found = itself ? null : newest(library);
      if (found != null) {
        return found;
      }
      NetPluginCalls.closeLibrary(library);
      searched.append("; ").append(name).append(": ").append(itself ? ITSELF : NO_PLUGIN);
    }
    throw TransportFailure.of(
        FluxCclException.NO_RANK,
        "no network plugin was found%s; name one by its suffix or its file in NCCL_NET_PLUGIN, and"
            + " its folder in LD_LIBRARY_PATH",
        searched);
  }

  private static Found newest(long library) {
    for (int version = NetPluginCalls.NEWEST_VERSION;
        version >= NetPluginCalls.OLDEST_VERSION;
        version--) {
      long plugin = NetPluginCalls.find(library, version);
      if (plugin != 0) {
        return new Found(library, plugin, version, text(NetPluginCalls.path(library)));
      }
    }
    return null;
  }

  static byte[] bytes(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }

  static String text(byte[] bytes) {
    return bytes == null ? "" : new String(bytes, StandardCharsets.UTF_8);
  }
}

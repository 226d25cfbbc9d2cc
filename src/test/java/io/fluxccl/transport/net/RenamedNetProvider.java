// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import io.fluxccl.netplugin.NetPlugin;
import io.fluxccl.netplugin.NetPluginProvider;
import io.fluxccl.netplugin.vendor.NativeNetPlugin;
import io.fluxccl.transport.Overlay;
import java.util.Optional;

/** A network "of Java", found by the ServiceLoader: the test plugin by another name. */
public final class RenamedNetProvider implements NetPluginProvider {
  static final String LIBRARY_PROPERTY = "fluxccl.test.renamed.net";

  /** For {@link java.util.ServiceLoader}. */
  public RenamedNetProvider() {}

  @Override
  public String name() {
    return "renamed";
  }

  @Override
  public int priority() {
    return Integer.MIN_VALUE;
  }

  @Override
  public Optional<String> unavailableBecause() {
    return System.getProperty(LIBRARY_PROPERTY) == null
        ? Optional.of("only a test wants it")
        : Optional.empty();
  }

  @Override
  public NetPlugin open() {
    NetPlugin plugin = NativeNetPlugin.open(System.getProperty(LIBRARY_PROPERTY));
    Object renamed =
        new Object() {
          String name() {
            return "renamed";
          }
        };
    return Overlay.of(NetPlugin.class, renamed, plugin);
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import io.fluxccl.netplugin.NetHandle;
import io.fluxccl.netplugin.NetListenComm;
import io.fluxccl.netplugin.NetPlugin;
import io.fluxccl.netplugin.NetPluginProvider;
import io.fluxccl.netplugin.NetProperties;
import io.fluxccl.netplugin.NetSendComm;
import io.fluxccl.netplugin.vendor.NativeNetPlugin;
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
    return new NetPlugin() {
      @Override
      public String name() {
        return RenamedNetProvider.this.name();
      }

      @Override
      public int devices() {
        return plugin.devices();
      }

      @Override
      public NetProperties properties(int device) {
        return plugin.properties(device);
      }

      @Override
      public NetListenComm listen(int device) {
        return plugin.listen(device);
      }

      @Override
      public NetSendComm connect(int device, NetHandle handle) {
        return plugin.connect(device, handle);
      }

      @Override
      public void close() {
        plugin.close();
      }
    };
  }
}

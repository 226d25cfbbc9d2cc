package io.fluxccl.netplugin.tcp;

import io.fluxccl.netplugin.NetPlugin;
import io.fluxccl.netplugin.NetPluginProvider;
import java.util.Optional;

/** Provides {@link TcpNetPlugin}, configured by the environment. */
public final class TcpNetPluginProvider implements NetPluginProvider {
  /** The priority, which is below that of a network for special hardware. */
  private static final int PRIORITY = 0;

  @Override
  public String name() {
    return TcpNetPlugin.NAME;
  }

  @Override
  public int priority() {
    return PRIORITY;
  }

  @Override
  public Optional<String> unavailableBecause() {
    return Optional.empty();
  }

  @Override
  public NetPlugin open() {
    return new TcpNetPlugin(TcpOptions.fromEnvironment(System::getenv));
  }
}

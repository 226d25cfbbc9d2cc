package io.fluxccl.netplugin.ib;

import io.fluxccl.FluxCclException;
import io.fluxccl.device.DeviceKind;
import io.fluxccl.netplugin.NetPlugin;
import io.fluxccl.netplugin.NetPluginProvider;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.ib.IbTransport;
import java.util.Optional;

/** Offers {@link IbNetPlugin}, set as the environment says. */
public final class IbNetPluginProvider implements NetPluginProvider {
  private static final int BELOW_TCP = -10;

  @Override
  public String name() {
    return IbNetPlugin.NAME;
  }

  /**
   * Below TCP's, so that it has to be named: all hosts must choose the same network, and not all
   * need have a device.
   */
  @Override
  public int priority() {
    return BELOW_TCP;
  }

  @Override
  public Optional<String> unavailableBecause() {
    IbTransport transport = new IbTransport();
    try {
      int devices = IbTransport.getIbDeviceCount();
      Optional<String> first = Optional.of("this machine has no RDMA device");
      for (int i = devices - 1; i >= 0; i--) {
        Transport each = Transport.values()[Transport.IB0.ordinal() + i];
        first = transport.unavailableBecause(each);
        if (first.isEmpty()) {
          return transport.unreachableBecause(each, DeviceKind.HOST);
        }
      }
      return first;
    } catch (FluxCclException e) {
      return Optional.of(e.getMessage());
    }
  }

  @Override
  public NetPlugin open() {
    return new IbNetPlugin(IbNetOptions.fromEnvironment(System::getenv));
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.plugin;

import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.Text;
import io.fluxccl.concurrent.Closing;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.netplugin.NetPlugin;
import io.fluxccl.netplugin.NetProperties;
import io.fluxccl.netplugin.PointerType;
import io.fluxccl.netplugin.vendor.NativeNetPlugin;
import io.fluxccl.transport.EndpointConfig;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportContext;
import io.fluxccl.transport.TransportEnvironment;
import io.fluxccl.transport.TransportProvider;
import io.fluxccl.transport.net.Link;
import io.fluxccl.transport.net.LinkNetwork;
import io.fluxccl.transport.net.NetContext;
import java.security.SecureRandom;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.function.Predicate;
import org.agrona.CloseHelper;

/**
 * Provides {@link Transport#NET}: any network that has a plugin for NCCL. {@code NCCL_NET_PLUGIN}
 * names a vendor's library, as for NCCL. {@value #NETWORK_VARIABLE} names the network, which may
 * also be a Java network of a {@link io.fluxccl.netplugin.NetPluginProvider}. If neither is set,
 * {@code libnccl-net.so} is used if it exists, and else the Java network with the highest priority.
 * {@value #DEVICES_VARIABLE} chooses among the network's devices by number or name, for example
 * {@code 0,2}. All chosen devices are used as rails: the n-th device of one rank with the n-th of
 * another. A system property overrides each variable.
 *
 * <p>Each context has one daemon thread, on which its connections' futures complete: never block
 * it, and run long work elsewhere.
 */
public final class NetTransport implements TransportProvider {
  /** The environment variable, NCCL's, with the network's name. */
  public static final String NETWORK_VARIABLE = "NCCL_NET";

  /** The environment variable with the devices to use. */
  public static final String DEVICES_VARIABLE = "FLUXCCL_NET_DEVICES";

  /** The system property with the network's name. */
  public static final String NETWORK_PROPERTY = "fluxccl.net.name";

  /** The system property with the vendor's library. */
  public static final String LIBRARY_PROPERTY = "fluxccl.net.plugin";

  /** The system property with the devices to use. */
  public static final String DEVICES_PROPERTY = "fluxccl.net.devices";

  private static final int MBPS = 1000;

  /**
   * The network that {@link #unavailableBecause} found. It is held until {@link #open} has opened
   * it, so that it is not initialized twice. Guarded by the class.
   */
  private static OpenPlugins.Lease found;

  /** Creates a provider. Called by {@link java.util.ServiceLoader}. */
  public NetTransport() {}

  @Override
  public Set<Transport> transports() {
    return Set.of(Transport.NET);
  }

  @Override
  public Optional<String> unavailableBecause(Transport transport) {
    requireNet(transport);
    NetChoice choice = NetChoice.fromEnvironment();
    try {
      OpenPlugins.Lease lease = choice.open(null);
      hold(lease);
      choice.devicesOf(lease.plugin());
      return Optional.empty();
    } catch (FluxCclException e) {
      hold(null);
      return Optional.of(e.getMessage());
    }
  }

  private static synchronized void hold(OpenPlugins.Lease lease) {
    if (found != null) {
      found.close();
    }
    found = lease;
  }

  @Override
  public Optional<String> description(Transport transport) {
    requireNet(transport);
    NetChoice choice = NetChoice.fromEnvironment();
    try (OpenPlugins.Lease lease = choice.open(null)) {
      NetPlugin plugin = lease.plugin();
      List<String> devices = new ArrayList<>();
      for (int device : choice.devicesOf(plugin)) {
        NetProperties properties = plugin.properties(device);
        devices.add(
            Text.of(
                "%s (%s Gb/s, %s memory)",
                properties.name(),
                properties.speedMbps() / MBPS,
                String.join(
                    " and ", properties.pointers().stream().map(Enum::name).sorted().toList())));
      }
      String network = plugin instanceof NativeNetPlugin ? plugin.toString() : plugin.name();
      return Optional.of(network + ": " + String.join(", ", devices));
    }
  }

  @Override
  public TransportContext open(Transport transport, TransportEnvironment environment) {
    requireNet(transport);
    NetContext context = open(NetChoice.fromEnvironment(), environment);
    hold(null);
    return context;
  }

  /** Opens the network of a choice for one communicator, as {@link #open} does. */
  public static NetContext open(NetChoice choice, TransportEnvironment environment) {
    OpenPlugins.Lease lease = choice.open(environment.hostAddress());
    return Closing.onFailure(
        lease,
        () -> open(lease.plugin(), lease, choice.devicesOf(lease.plugin()), environment, null));
  }

  /**
   * Opens a context over a plug-in.
   *
   * @param lease closed when all connections have ended
   * @param devices the device of each rail
   * @param alsoStaged returns whether to stage a buffer that the network can access; null stages
   *     none
   */
  public static NetContext open(
      NetPlugin plugin,
      AutoCloseable lease,
      int[] devices,
      TransportEnvironment environment,
      Predicate<DeviceBuffer> alsoStaged) {
    PluginNetwork network = new PluginNetwork(plugin, devices, lease);
    return new NetContext(Transport.NET, environment, network, alsoStaged);
  }

  private static void requireNet(Transport transport) {
    if (transport != Transport.NET) {
      throw new InvalidUsage("transport=" + transport + "; this provider has only NET");
    }
  }

  /**
   * The network of NET: a plug-in, and the devices of its rails.
   *
   * @param plugin the plug-in
   * @param devices the device of each rail
   * @param lease closed with the network
   */
  private record PluginNetwork(NetPlugin plugin, int[] devices, AutoCloseable lease)
      implements LinkNetwork {
    private static final SecureRandom RANDOM = new SecureRandom();

    @Override
    public String name() {
      return plugin.name();
    }

    @Override
    public boolean reachesGpus() {
      for (int device : devices) {
        if (!plugin.properties(device).pointers().contains(PointerType.CUDA)) {
          return false;
        }
      }
      return true;
    }

    @Override
    public Link listen(int peer, EndpointConfig config) {
      byte[] token = new byte[PluginAddress.TOKEN_LENGTH];
      RANDOM.nextBytes(token);
      return new PluginLink(plugin, devices, token, peer);
    }

    @Override
    public void close() {
      CloseHelper.close(lease);
    }
  }
}

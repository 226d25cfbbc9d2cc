// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import io.fluxccl.InvalidUsage;
import io.fluxccl.concurrent.Closing;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.host.HostMemory;
import io.fluxccl.settings.Settings;
import io.fluxccl.tls.Tls;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportContext;
import io.fluxccl.transport.TransportEnvironment;
import io.fluxccl.transport.TransportProvider;
import io.fluxccl.transport.tcp.PortRange;
import java.util.Optional;
import java.util.Set;
import java.util.function.Predicate;
import java.util.function.UnaryOperator;

/**
 * Provides {@link Transport#ETHERNET}: the TCP network at the rank's own address. All connections
 * of a communicator listen on one port. The environment variable {@value #PORT_RANGE_VARIABLE}, for
 * example {@code 40000-40100}, names the ports that it may use; the system property {@value
 * #PORT_RANGE_PROPERTY} overrides it. A GPU's memory is staged through pinned memory of the host.
 * If the system property {@value #STAGING_PROPERTY} is {@code always}, host memory is staged too.
 * Each context has one daemon thread, on which its connections' futures complete: never block it,
 * and run long work elsewhere.
 */
public final class EthernetTransport implements TransportProvider {
  /** The environment variable with the ports that listeners may use. */
  public static final String PORT_RANGE_VARIABLE = "FLUXCCL_PORT_RANGE";

  /** The system property with the ports that listeners may use. */
  public static final String PORT_RANGE_PROPERTY = "fluxccl.port.range";

  /**
   * The system property with the staging mode: {@code auto}, or {@code always} to stage host memory
   * like a GPU's, for tests without a GPU.
   */
  public static final String STAGING_PROPERTY = "fluxccl.ethernet.staging";

  /** Creates a provider. Called by {@link java.util.ServiceLoader}. */
  public EthernetTransport() {}

  @Override
  public Set<Transport> transports() {
    return Set.of(Transport.ETHERNET);
  }

  @Override
  public Optional<String> unavailableBecause(Transport transport) {
    requireEthernet(transport);
    return Optional.empty();
  }

  @Override
  public TransportContext open(Transport transport, TransportEnvironment environment) {
    return open(transport, environment, UnaryOperator.identity());
  }

  /**
   * Opens a context over a changed network, for tests that inject faults.
   *
   * @param transport ETHERNET
   * @param environment the communicator
   * @param change returns the network to use in place of the TCP network, which it closes
   * @return the context; the communicator closes it
   */
  public TransportContext open(
      Transport transport, TransportEnvironment environment, UnaryOperator<LinkNetwork> change) {
    requireEthernet(transport);
    PortRange ports =
        Settings.ofProcess().word(PORT_RANGE_VARIABLE, PortRange::parse).orElse(PortRange.ANY);
    return open(
        environment, ports, stagesAll() ? buffer -> true : null, Tls.fromEnvironment(), change);
  }

  /**
   * Opens a context and its listener.
   *
   * @param alsoStaged returns whether to stage a buffer of host memory like a GPU's; null stages
   *     none
   * @param tls below the connections, if any
   * @param change returns the network to use in place of the TCP network
   * @throws io.fluxccl.TransportFailure if there is no port to listen on
   */
  static NetContext open(
      TransportEnvironment environment,
      PortRange ports,
      Predicate<DeviceBuffer> alsoStaged,
      Optional<Tls> tls,
      UnaryOperator<LinkNetwork> change) {
    LinkNetwork network =
        change.apply(new TcpNetwork(environment.rank(), environment.hostAddress(), ports, tls));
    return Closing.onFailure(
        network, () -> new NetContext(Transport.ETHERNET, environment, network, alsoStaged));
  }

  /**
   * Returns whether a message of a connection only confirms what its sender has received. When it
   * sends those depends on time, not on what is posted.
   *
   * @param head the address of the message
   */
  public static boolean isConfirmation(long head) {
    return HostMemory.getInt(head + ControlMessage.TYPE) == ControlMessage.CONFIRM;
  }

  private static boolean stagesAll() {
    String wanted = System.getProperty(STAGING_PROPERTY, "auto");
    if (!Set.of("auto", "always").contains(wanted)) {
      throw InvalidUsage.of("%s=%s; give auto or always", STAGING_PROPERTY, wanted);
    }
    return wanted.equals("always");
  }

  private static void requireEthernet(Transport transport) {
    if (transport != Transport.ETHERNET) {
      throw InvalidUsage.of("transport=%s; this provider has only ETHERNET", transport);
    }
  }
}

package io.fluxccl.transport.ethernet;

import io.fluxccl.InvalidUsage;
import io.fluxccl.netplugin.tcp.PortRange;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportContext;
import io.fluxccl.transport.TransportEnvironment;
import io.fluxccl.transport.TransportProvider;
import java.util.Optional;
import java.util.Set;

/**
 * Provides {@link Transport#ETHERNET}: TCP, by epoll where its natives are there, by NIO elsewhere.
 *
 * <p>The system property {@value #FORCE_NIO_PROPERTY} set to {@code true} forces NIO. The
 * environment variable {@value #PORT_RANGE_VARIABLE}, for example {@code 40000-40100}, says which
 * ports listeners may use; the system property {@value #PORT_RANGE_PROPERTY} overrides it. A GPU's
 * memory is staged through pinned memory of the host; the system property {@value
 * #STAGING_PROPERTY} set to {@code always} does so with host memory too. Each context has one
 * daemon thread, on which its connections' futures complete: hand long work on, and never block
 * there.
 */
public final class EthernetTransport implements TransportProvider {
  /** Set to {@code true} to use NIO even where epoll is there. */
  public static final String FORCE_NIO_PROPERTY = "fluxccl.ethernet.nio";

  /** The environment variable with the ports that listeners may use. */
  public static final String PORT_RANGE_VARIABLE = "FLUXCCL_PORT_RANGE";

  /** The system property with the ports that listeners may use. */
  public static final String PORT_RANGE_PROPERTY = "fluxccl.port.range";

  /**
   * {@code auto}, or {@code always} to stage host memory as if it were a GPU's: for tests without
   * one.
   */
  public static final String STAGING_PROPERTY = "fluxccl.ethernet.staging";

  /** For {@link java.util.ServiceLoader}. */
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
    requireEthernet(transport);
    return EthernetContext.open(
        environment, NetworkStack.choose(), portsFromEnvironment(), StagingPolicy.choose());
  }

  private static PortRange portsFromEnvironment() {
    return PortRange.parse(
        PORT_RANGE_VARIABLE,
        System.getProperty(PORT_RANGE_PROPERTY, System.getenv(PORT_RANGE_VARIABLE)));
  }

  private static void requireEthernet(Transport transport) {
    if (transport != Transport.ETHERNET) {
      throw new InvalidUsage("transport=" + transport + "; this provider has only ETHERNET");
    }
  }
}

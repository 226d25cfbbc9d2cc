package io.fluxccl.transport;

import io.fluxccl.device.DeviceKind;
import java.util.Optional;
import java.util.Set;

/** Provides transports; found by {@link java.util.ServiceLoader}. Implementations have no state. */
public interface TransportProvider {
  /** Returns the transports that it provides. */
  Set<Transport> transports();

  /**
   * Returns why a transport can't be used on this machine.
   *
   * @param transport one of {@link #transports()}
   * @return what is missing and how to get it, or empty when it is available
   */
  Optional<String> unavailableBecause(Transport transport);

  /**
   * Returns why an available transport can't reach memory of a kind of device on this machine.
   *
   * @param transport one of {@link #transports()}, available
   * @param kind of the device whose memory it is
   * @return what is missing and how to get it, or empty when nothing is known to be
   */
  default Optional<String> unreachableBecause(Transport transport, DeviceKind kind) {
    return Optional.empty();
  }

  /**
   * Returns one line about an available transport on this machine: its device, its address.
   *
   * @param transport one of {@link #transports()}, available
   * @return the line, or empty when there is nothing to say
   */
  default Optional<String> description(Transport transport) {
    return Optional.empty();
  }

  /**
   * Opens a transport for one communicator.
   *
   * @param transport one of {@link #transports()}
   * @param environment the communicator that asks
   * @return the context; the communicator closes it
   * @throws io.fluxccl.TransportFailure if it can't be opened
   */
  TransportContext open(Transport transport, TransportEnvironment environment);
}

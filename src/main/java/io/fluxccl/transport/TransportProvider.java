// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport;

import io.fluxccl.Experimental;
import io.fluxccl.OptionalLibrary;
import io.fluxccl.device.DeviceKind;
import java.util.Optional;
import java.util.Set;

/**
 * Provides transports. {@link java.util.ServiceLoader} finds the implementations, which have no
 * state.
 */
@Experimental
public interface TransportProvider {
  /** Returns the transports that this provider provides. */
  Set<Transport> transports();

  /**
   * Returns the reason that a transport can't be used on this machine.
   *
   * @param transport one of {@link #transports()}
   * @return what is missing and how to get it, or empty when it is available
   */
  Optional<String> unavailableBecause(Transport transport);

  /**
   * Returns the reason that an available transport can't access memory of a kind of device on this
   * machine.
   *
   * @param transport one of {@link #transports()}, available
   * @param kind the kind of the device that owns the memory
   * @param exportsDmaBufs whether that device exports its memory as dma-bufs
   * @return what is missing and how to get it, or empty when nothing is known to be missing
   */
  default Optional<String> unreachableBecause(
      Transport transport, DeviceKind kind, boolean exportsDmaBufs) {
    return Optional.empty();
  }

  /**
   * Returns one line about an available transport on this machine: its device, its address.
   *
   * @param transport one of {@link #transports()}, available
   * @return the line, or empty when there is no description
   */
  default Optional<String> description(Transport transport) {
    return Optional.empty();
  }

  /**
   * Returns the reason that no provider of a transport is found.
   *
   * @param transport a transport that no provider has
   * @return what to add to the class path, or that this build lacks the transport
   */
  static String absentBecause(Transport transport) {
    Optional<String> missing =
        switch (transport) {
          case SHM, CUDA_IPC, ETHERNET -> Optional.empty();
          case NET -> OptionalLibrary.NCCL.missingReason();
          default -> OptionalLibrary.RDMA.missingReason();
        };
    return missing.orElse("not in this build");
  }

  /**
   * Opens a transport for one communicator.
   *
   * @param transport one of {@link #transports()}
   * @param environment the communicator
   * @return the context; the communicator closes it
   * @throws io.fluxccl.TransportFailure if it can't be opened
   */
  TransportContext open(Transport transport, TransportEnvironment environment);
}

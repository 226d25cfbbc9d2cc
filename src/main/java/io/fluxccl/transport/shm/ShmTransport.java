// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.shm;

import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.TransportFailure;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportContext;
import io.fluxccl.transport.TransportEnvironment;
import io.fluxccl.transport.TransportProvider;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Optional;
import java.util.Set;

/**
 * Provides {@link Transport#SHM}, for memory of the host, on machines with a {@code /proc}. The
 * communicator's device may be a GPU.
 */
public final class ShmTransport implements TransportProvider {
  private static final Path DESCRIPTORS = Path.of("/proc/self/fd");

  /** Creates a provider. Called by the service loader. */
  public ShmTransport() {}

  @Override
  public Set<Transport> transports() {
    return Set.of(Transport.SHM);
  }

  @Override
  public Optional<String> unavailableBecause(Transport transport) {
    return Files.isDirectory(DESCRIPTORS)
        ? Optional.empty()
        : Optional.of("there is no " + DESCRIPTORS + "; run on Linux with /proc mounted");
  }

  @Override
  public TransportContext open(Transport transport, TransportEnvironment environment) {
    if (transport != Transport.SHM) {
      throw new InvalidUsage("transport=" + transport + "; this provides SHM");
    }
    unavailableBecause(transport)
        .ifPresent(
            why -> {
              throw new TransportFailure(FluxCclException.NO_RANK, "SHM is unavailable: " + why);
            });
    return new ShmContext(environment);
  }
}

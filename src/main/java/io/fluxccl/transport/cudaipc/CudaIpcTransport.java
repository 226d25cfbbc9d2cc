// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.cudaipc;

import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.TransportFailure;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.device.cuda.CudaDriver;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportContext;
import io.fluxccl.transport.TransportEnvironment;
import io.fluxccl.transport.TransportProvider;
import java.util.Optional;
import java.util.Set;

/** Provides {@link Transport#CUDA_IPC}, for memory of GPUs of one host. */
public final class CudaIpcTransport implements TransportProvider {
  /** Creates a provider. Called by the service loader. */
  public CudaIpcTransport() {}

  @Override
  public Set<Transport> transports() {
    return Set.of(Transport.CUDA_IPC);
  }

  @Override
  public Optional<String> unavailableBecause(Transport transport) {
    return CudaDriver.unavailableBecause();
  }

  @Override
  public TransportContext open(Transport transport, TransportEnvironment environment) {
    if (transport != Transport.CUDA_IPC) {
      throw new InvalidUsage("transport=" + transport + "; this provides CUDA_IPC");
    }
    if (!(environment.device() instanceof CudaDevice)) {
      throw InvalidUsage.of(
          "CUDA_IPC moves memory of GPUs; rank %s has %s: use SHM for the host device",
          environment.rank(), environment.device());
    }
    unavailableBecause(transport)
        .ifPresent(
            why -> {
              throw new TransportFailure(
                  FluxCclException.NO_RANK, "CUDA_IPC is unavailable: " + why);
            });
    return new CudaIpcContext(environment, (CudaDevice) environment.device());
  }
}

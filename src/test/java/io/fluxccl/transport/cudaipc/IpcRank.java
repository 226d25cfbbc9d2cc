// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.cudaipc;

import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.transport.ConnectedRanks;
import io.fluxccl.transport.Endpoint;
import io.fluxccl.transport.EndpointConfig;
import io.fluxccl.transport.MemoryOrigin;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportEnvironment;
import java.net.InetAddress;
import java.util.Map;

/** One rank with its GPU and its transport. */
final class IpcRank implements AutoCloseable {
  static final long HOST = 11;

  final CudaDevice device;
  final TransportEnvironment environment;
  final CudaIpcContext context;

  IpcRank(int rank, CudaDevice device, long hostHash) {
    this.device = device;
    environment =
        new TransportEnvironment(
            rank,
            2,
            hostHash,
            ProcessHandle.current().pid(),
            device,
            InetAddress.getLoopbackAddress());
    context = (CudaIpcContext) new CudaIpcTransport().open(Transport.CUDA_IPC, environment);
  }

  /** A rank of this host. */
  IpcRank(int rank, CudaDevice device) {
    this(rank, device, HOST);
  }

  RegisteredMemory register(DeviceBuffer buffer) {
    MemoryOrigin origin =
        new MemoryOrigin(
            environment.rank(),
            environment.hostHash(),
            environment.processHash(),
            buffer.address(),
            buffer.size());
    return RegisteredMemory.local(
        origin, buffer, Map.of(Transport.CUDA_IPC, context.register(buffer)));
  }

  /** One end of a connection with the other rank. */
  Endpoint endpoint() {
    return context.createEndpoint(1 - environment.rank(), 5, EndpointConfig.of(Transport.CUDA_IPC));
  }

  CudaIpcConnection connect(byte[] wire) {
    return (CudaIpcConnection) endpoint().connect(wire, ConnectedRanks.deadline()).join();
  }

  @Override
  public void close() {
    context.close();
    device.close();
  }
}

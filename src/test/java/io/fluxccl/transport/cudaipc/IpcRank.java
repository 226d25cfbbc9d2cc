// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.cudaipc;

import io.fluxccl.Deadline;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.cuda.CudaBuffer;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.transport.Endpoint;
import io.fluxccl.transport.EndpointConfig;
import io.fluxccl.transport.MemoryHandle;
import io.fluxccl.transport.MemoryOrigin;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportEnvironment;
import io.fluxccl.transport.TransportFlags;
import java.net.InetAddress;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Duration;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;

/** One rank with its GPU and its transport. */
final class IpcRank implements AutoCloseable {
  static final long HOST = 11;

  final CudaDevice device;
  final TransportEnvironment environment;
  final CudaIpcContext context;
  private final Queue<CudaBuffer> buffers = new ConcurrentLinkedQueue<>();

  IpcRank(int rank, CudaDevice device, long hostHash, long processHash) {
    this.device = device;
    environment =
        new TransportEnvironment(
            rank, 2, hostHash, processHash, device, InetAddress.getLoopbackAddress());
    context = (CudaIpcContext) new CudaIpcTransport().open(Transport.CUDA_IPC, environment);
  }

  /** A rank of this process. */
  IpcRank(int rank, CudaDevice device) {
    this(rank, device, HOST, ProcessHandle.current().pid());
  }

  /** A buffer that is closed with the rank. */
  CudaBuffer allocate(long size) {
    CudaBuffer buffer = device.allocate(size);
    buffers.add(buffer);
    return buffer;
  }

  MemoryOrigin originOf(DeviceBuffer buffer) {
    return new MemoryOrigin(
        environment.rank(),
        environment.hostHash(),
        environment.processHash(),
        buffer.address(),
        buffer.size());
  }

  RegisteredMemory register(DeviceBuffer buffer) {
    return RegisteredMemory.local(
        originOf(buffer), buffer, Map.of(Transport.CUDA_IPC, context.register(buffer)));
  }

  RegisteredMemory receive(RegisteredMemory memory) {
    return receive(memory.handle(Transport.CUDA_IPC).wire(), memory.origin());
  }

  RegisteredMemory receive(byte[] wire, MemoryOrigin origin) {
    MemoryHandle handle = context.open(wire, origin);
    return RegisteredMemory.remote(
        origin, TransportFlags.of(Transport.CUDA_IPC), Map.of(Transport.CUDA_IPC, handle));
  }

  CudaIpcConnection connect(IpcRank peer) {
    return connect(peer.environment.rank(), peer.endpoint(this, 5).wire());
  }

  CudaIpcConnection connect(int peer, byte[] wire) {
    Endpoint here = context.createEndpoint(peer, 5, config());
    return (CudaIpcConnection) here.connect(wire, deadline()).join();
  }

  Endpoint endpoint(IpcRank peer, int tag) {
    return context.createEndpoint(peer.environment.rank(), tag, config());
  }

  static EndpointConfig config() {
    return EndpointConfig.of(Transport.CUDA_IPC);
  }

  static Deadline deadline() {
    return Deadline.after(Duration.ofSeconds(10));
  }

  static void putLong(DeviceBuffer buffer, long offset, long value) {
    buffer.upload(
        offset,
        ByteBuffer.allocate(Long.BYTES).order(ByteOrder.LITTLE_ENDIAN).putLong(value).flip());
  }

  static long getLong(DeviceBuffer buffer, long offset) {
    ByteBuffer word = ByteBuffer.allocate(Long.BYTES).order(ByteOrder.LITTLE_ENDIAN);
    buffer.download(offset, word);
    return word.getLong(0);
  }

  @Override
  public void close() {
    context.close();
    buffers.forEach(CudaBuffer::close);
    device.close();
  }
}

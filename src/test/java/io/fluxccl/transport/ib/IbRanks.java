// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.ib;

import io.fluxccl.Deadline;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.device.host.HostDevice;
import io.fluxccl.transport.ConnectedRanks;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.Endpoint;
import io.fluxccl.transport.EndpointConfig;
import io.fluxccl.transport.MemoryHandle;
import io.fluxccl.transport.MemoryOrigin;
import io.fluxccl.transport.RdmaOptions;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportEnvironment;
import io.fluxccl.transport.TransportFlags;
import java.net.InetAddress;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import java.util.function.IntFunction;

/** Two ranks of one JVM over queue pairs of IB0, and what a communicator would do. */
public final class IbRanks implements ConnectedRanks {
  public static final Duration LIMIT = Duration.ofSeconds(60);

  private final List<Device> devices;
  private final List<IbContext> contexts = new ArrayList<>();
  private final List<DeviceBuffer> buffers = new CopyOnWriteArrayList<>();

  /** Opens two ranks whose memory is registered in parts of at most {@code piece} bytes. */
  interface Opener {
    IbRanks open(long piece);
  }

  /** On the host over real queue pairs of IB0, memory registered in one piece. */
  public IbRanks() {
    this(IbMemoryHandle.PIECE);
  }

  IbRanks(long piece) {
    this(VerbsLibrary.get(), ofIb0(), piece, rank -> HostDevice.create());
  }

  /** On one of this machine's RDMA devices. */
  IbRanks(RdmaDevices.Device device) {
    this(VerbsLibrary.get(), device, IbMemoryHandle.PIECE, rank -> HostDevice.create());
  }

  /** Closes the devices when it is closed. */
  IbRanks(Verbs verbs, RdmaDevices.Device rdma, long piece, IntFunction<Device> opener) {
    devices = List.of(opener.apply(0), opener.apply(1));
    for (int rank = 0; rank < 2; rank++) {
      contexts.add(context(rank, devices.get(rank), piece, verbs, rdma));
    }
  }

  /** On the host, without an RDMA device. */
  static IbRanks fake(long piece) {
    return fake(new FakeVerbs(), piece);
  }

  static IbRanks fake(FakeVerbs verbs, long piece) {
    return new IbRanks(verbs, FakeVerbs.DEVICE, piece, rank -> HostDevice.create());
  }

  /** On a GPU each, without an RDMA device. */
  static IbRanks fakeOnGpus(long piece) {
    return fakeOnGpus(new FakeVerbs(), piece);
  }

  static IbRanks fakeOnGpus(FakeVerbs verbs, long piece) {
    return new IbRanks(verbs, FakeVerbs.DEVICE, piece, CudaDevice::open);
  }

  /** On a GPU each, over real queue pairs of IB0. */
  static IbRanks onGpus(long piece) {
    return new IbRanks(VerbsLibrary.get(), ofIb0(), piece, CudaDevice::open);
  }

  private static RdmaDevices.Device ofIb0() {
    return RdmaDevices.ofThisMachine().get(0);
  }

  static IbContext context(int rank, Device device, long piece) {
    return context(rank, device, piece, VerbsLibrary.get(), ofIb0());
  }

  private static IbContext context(
      int rank, Device device, long piece, Verbs verbs, RdmaDevices.Device rdma) {
    return IbContext.open(
        Transport.IB0,
        new TransportEnvironment(rank, 2, 1, rank, device, InetAddress.getLoopbackAddress()),
        verbs,
        rdma,
        piece);
  }

  @Override
  public Duration limit() {
    return LIMIT;
  }

  @Override
  public IbContext context(int rank) {
    return contexts.get(rank);
  }

  @Override
  public List<Connection> connect(int a, int b, int tag) throws Exception {
    return connect(a, b, tag, RdmaOptions.DEFAULT);
  }

  List<Connection> connect(int a, int b, int tag, RdmaOptions options) throws Exception {
    Endpoint endA = endpoint(a, b, tag, options);
    Endpoint endB = endpoint(b, a, tag, options);
    CompletableFuture<Void> readyA = new CompletableFuture<>();
    CompletableFuture<Void> readyB = new CompletableFuture<>();
    CompletableFuture<Connection> toB =
        endA.connect(endB.wire(), Deadline.after(LIMIT), () -> meet(readyA, readyB));
    CompletableFuture<Connection> toA =
        endB.connect(endA.wire(), Deadline.after(LIMIT), () -> meet(readyB, readyA));
    return List.of(get(toB), get(toA));
  }

  private static CompletableFuture<Void> meet(
      CompletableFuture<Void> own, CompletableFuture<Void> theirs) {
    own.complete(null);
    return theirs;
  }

  @Override
  public Endpoint endpoint(int rank, int remoteRank, int tag) {
    return endpoint(rank, remoteRank, tag, RdmaOptions.DEFAULT);
  }

  Endpoint endpoint(int rank, int remoteRank, int tag, RdmaOptions options) {
    return context(rank)
        .createEndpoint(remoteRank, tag, EndpointConfig.of(Transport.IB0).withRdma(options));
  }

  static <T> T get(CompletableFuture<T> future) throws Exception {
    return future.get(2 * LIMIT.toMillis(), TimeUnit.MILLISECONDS);
  }

  @Override
  public RegisteredMemory memory(int rank, long size) {
    DeviceBuffer buffer = devices.get(rank).allocate(size);
    buffers.add(buffer);
    return register(rank, context(rank), buffer);
  }

  static RegisteredMemory register(int rank, IbContext context, DeviceBuffer buffer) {
    MemoryHandle handle = context.register(buffer);
    return RegisteredMemory.local(
        new MemoryOrigin(rank, 1, rank, buffer.address(), buffer.size()),
        buffer,
        Map.of(Transport.IB0, handle));
  }

  @Override
  public RegisteredMemory seenByPeer(RegisteredMemory owned) {
    return seenByPeer(owned, owned.handle(Transport.IB0).wire(), owned.size());
  }

  RegisteredMemory seenByPeer(RegisteredMemory owned, byte[] wire, long size) {
    return open(context(1 - owned.rank()), owned.rank(), wire, size);
  }

  static RegisteredMemory open(IbContext context, int owner, byte[] wire, long size) {
    MemoryOrigin origin = new MemoryOrigin(owner, 1, owner, 1, size);
    return RegisteredMemory.remote(
        origin,
        TransportFlags.of(Transport.IB0),
        Map.of(Transport.IB0, context.open(wire, origin)));
  }

  @Override
  public void close() {
    contexts.forEach(IbContext::close);
    buffers.forEach(DeviceBuffer::close);
    devices.forEach(Device::close);
  }
}

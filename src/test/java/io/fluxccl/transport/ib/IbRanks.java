package io.fluxccl.transport.ib;

import io.fluxccl.Deadline;
import io.fluxccl.device.DeviceBuffer;
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
import java.net.Inet4Address;
import java.net.InetAddress;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;

/** Two ranks of one JVM over real queue pairs of IB0, and what a communicator would do. */
public final class IbRanks implements ConnectedRanks {
  public static final Duration LIMIT = Duration.ofSeconds(60);

  private final HostDevice device = HostDevice.create();
  private final List<IbContext> contexts = new ArrayList<>();
  private final List<DeviceBuffer> buffers = new CopyOnWriteArrayList<>();

  /** Memory registered in one piece. */
  public IbRanks() {
    this(IbMemoryHandle.PIECE);
  }

  IbRanks(long piece) {
    this(piece, RdmaDevices.ofThisMachine().get(0).address());
  }

  /** On whichever RDMA device has that address. */
  IbRanks(Inet4Address address) {
    this(IbMemoryHandle.PIECE, address);
  }

  private IbRanks(long piece, Inet4Address address) {
    for (int rank = 0; rank < 2; rank++) {
      contexts.add(context(rank, device, piece, address));
    }
  }

  static IbContext context(int rank, HostDevice device, long piece) {
    return context(rank, device, piece, RdmaDevices.ofThisMachine().get(0).address());
  }

  private static IbContext context(int rank, HostDevice device, long piece, Inet4Address address) {
    return IbContext.open(
        Transport.IB0,
        new TransportEnvironment(rank, 2, 1, rank, device, InetAddress.getLoopbackAddress()),
        VerbsLibrary.get(),
        address,
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
    CompletableFuture<Connection> toB = endA.connect(endB.wire(), Deadline.after(LIMIT));
    CompletableFuture<Connection> toA = endB.connect(endA.wire(), Deadline.after(LIMIT));
    return List.of(get(toB), get(toA));
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
    DeviceBuffer buffer = device.allocate(size);
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
    device.close();
  }
}

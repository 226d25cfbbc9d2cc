// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.catchThrowable;

import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import java.net.InetAddress;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;

/** Two ranks of one JVM over one transport, and what a communicator would do for them. */
public abstract class ConnectedRanks implements AutoCloseable {
  /** The timeout of each operation. */
  public static final Duration LIMIT = Duration.ofSeconds(60);

  private final List<TransportEnvironment> environments;
  private final List<DeviceBuffer> buffers = new CopyOnWriteArrayList<>();

  /** Closes the devices of the environments when it is closed. */
  protected ConnectedRanks(List<TransportEnvironment> environments) {
    this.environments = environments;
  }

  /** Returns the environments of two ranks of one host, each a process of its own. */
  protected static List<TransportEnvironment> environments(Device device0, Device device1) {
    return List.of(environment(0, device0), environment(1, device1));
  }

  public static TransportEnvironment environment(int rank, Device device) {
    return new TransportEnvironment(rank, 2, 1, rank, device, InetAddress.getLoopbackAddress());
  }

  /** Returns the deadline of an operation that begins now. */
  public static Deadline deadline() {
    return Deadline.after(LIMIT);
  }

  /** A rank's side of the transport. */
  public abstract TransportContext context(int rank);

  public final Transport transport() {
    return context(0).transport();
  }

  public final Device device(int rank) {
    return environments.get(rank).device();
  }

  /** The configuration of connections that are made without one. */
  protected EndpointConfig config() {
    return EndpointConfig.of(transport());
  }

  /** One end of a new connection. */
  public final Endpoint endpoint(int rank, int remoteRank, int tag) {
    return context(rank).createEndpoint(remoteRank, tag, config());
  }

  /** A connection of rank 0 to rank 1 and its other end. */
  public final List<Connection> connect(int tag) throws Exception {
    return connect(0, 1, tag, config());
  }

  /** Both ends of a new connection, that of rank {@code a} first. */
  public final List<Connection> connect(int a, int b, int tag, EndpointConfig config)
      throws Exception {
    Endpoint endA = context(a).createEndpoint(b, tag, config);
    Endpoint endB = context(b).createEndpoint(a, tag, config);
    CompletableFuture<Void> readyA = new CompletableFuture<>();
    CompletableFuture<Void> readyB = new CompletableFuture<>();
    CompletableFuture<Connection> toB =
        endA.connect(endB.wire(), deadline(), () -> meet(readyA, readyB));
    CompletableFuture<Connection> toA =
        endB.connect(endA.wire(), deadline(), () -> meet(readyB, readyA));
    return List.of(get(toB), get(toA));
  }

  private static CompletableFuture<Void> meet(
      CompletableFuture<Void> own, CompletableFuture<Void> theirs) {
    own.complete(null);
    return theirs;
  }

  /** A new connection with memory at both ends. */
  public final Transfer transfer(int tag, int size) throws Exception {
    return transfer(connect(tag), 0, size);
  }

  /** Memory at both ends of a connection, which the rank {@code from} writes. */
  public final Transfer transfer(List<Connection> ends, int from, int size) {
    RegisteredMemory target = memory(1 - from, size);
    return new Transfer(
        ends.get(from),
        ends.get(1 - from),
        filled(from, size, from + 7),
        target,
        seenByPeer(target));
  }

  /** A new buffer of a rank's device, closed with the ranks. */
  public final DeviceBuffer allocate(int rank, long size) {
    return kept(device(rank).allocate(size));
  }

  /** Closes a buffer with the ranks. */
  protected final DeviceBuffer kept(DeviceBuffer buffer) {
    buffers.add(buffer);
    return buffer;
  }

  /** New registered memory of a rank, zeroed. */
  public final RegisteredMemory memory(int rank, long size) {
    return register(rank, allocate(rank, size));
  }

  /** New registered memory with bytes that the seed decides. */
  public final RegisteredMemory filled(int rank, int size, int seed) {
    RegisteredMemory memory = memory(rank, size);
    Contents.fill(memory, seed);
    return memory;
  }

  public final RegisteredMemory register(int rank, DeviceBuffer buffer) {
    TransportEnvironment own = environments.get(rank);
    return RegisteredMemory.local(
        new MemoryOrigin(rank, own.hostHash(), own.processHash(), buffer.address(), buffer.size()),
        buffer,
        Map.of(transport(), context(rank).register(buffer)));
  }

  /** A rank's memory as the other rank sees it. */
  public final RegisteredMemory seenByPeer(RegisteredMemory owned) {
    return seenByPeer(owned, wire(owned), owned.size());
  }

  /** A rank's memory as the other rank sees it if it gets these bytes and this size. */
  public final RegisteredMemory seenByPeer(RegisteredMemory owned, byte[] wire, long size) {
    MemoryOrigin real = owned.origin();
    MemoryOrigin origin =
        new MemoryOrigin(real.rank(), real.hostHash(), real.processHash(), real.address(), size);
    return opened(context(1 - owned.rank()), wire, origin);
  }

  /** Returns the bytes that describe memory to another rank. */
  public final byte[] wire(RegisteredMemory owned) {
    return owned.handle(transport()).wire();
  }

  /** Opens memory of another rank. */
  public static RegisteredMemory opened(
      TransportContext context, byte[] wire, MemoryOrigin origin) {
    Transport transport = context.transport();
    return RegisteredMemory.remote(
        origin, TransportFlags.of(transport), Map.of(transport, context.open(wire, origin)));
  }

  /** Returns the result of a future; fails after the timeout. */
  public static <T> T get(CompletableFuture<T> future) throws Exception {
    return future.get(LIMIT.toMillis(), TimeUnit.MILLISECONDS);
  }

  /** Returns the failure of a future, which must fail within the timeout. */
  public static FluxCclException failureOf(CompletableFuture<?> future) {
    Throwable failure = catchThrowable(() -> get(future));
    assertThat(failure).isInstanceOf(ExecutionException.class);
    return FluxCclException.from(failure);
  }

  /** Blocks a thread of a rank until the latch is counted down. */
  protected static CountDownLatch block(Executor thread) throws Exception {
    CountDownLatch release = new CountDownLatch(1);
    CompletableFuture<Void> blocked = new CompletableFuture<>();
    thread.execute(
        () -> {
          blocked.complete(null);
          CancelledHandOut.await(release);
        });
    get(blocked);
    return release;
  }

  @Override
  public void close() {
    context(0).close();
    context(1).close();
    buffers.forEach(DeviceBuffer::close);
    environments.forEach(environment -> environment.device().close());
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import io.fluxccl.FluxCclException;
import io.fluxccl.TransportFailure;
import io.fluxccl.netplugin.NetHandle;
import io.fluxccl.netplugin.NetListenComm;
import io.fluxccl.netplugin.NetMemory;
import io.fluxccl.netplugin.NetPlugin;
import io.fluxccl.netplugin.NetProperties;
import io.fluxccl.netplugin.NetRecvComm;
import io.fluxccl.netplugin.NetRequest;
import io.fluxccl.netplugin.NetSendComm;
import io.fluxccl.netplugin.PointerType;
import io.fluxccl.netplugin.tcp.TcpNetPlugin;
import io.fluxccl.netplugin.tcp.TcpOptions;
import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BooleanSupplier;
import java.util.function.LongConsumer;

/** The TCP network with configurable faults: its ends can refuse or delay operations. */
final class FaultyNet implements NetPlugin {
  private final NetPlugin plugin = new TcpNetPlugin(TcpOptions.DEFAULT.withInterfaces("lo"));

  /** Sending ends refuse to register memory of this size. */
  volatile long refusedSize;

  /** Deregistering memory of this size fails. */
  volatile long stuckSize;

  /** Maximum number of deregistrations that fail. */
  final AtomicInteger stuckAtMost = new AtomicInteger(Integer.MAX_VALUE);

  /** Sends of this size never complete. */
  volatile long unfinishedSize;

  /** Called with the size of each send before it, or null. */
  volatile LongConsumer beforeSend;

  /** Run by a listener before it returns an accepted connection, or null. */
  volatile Runnable beforeAccepted;

  private final AtomicInteger openEnds = new AtomicInteger();
  private final Map<Long, Integer> registrations = new ConcurrentHashMap<>();

  /** Number of open ends. */
  int openEnds() {
    return openEnds.get();
  }

  /** Number of registrations of this size. */
  int registrations(long size) {
    return registrations.getOrDefault(size, 0);
  }

  /** Receiving ends refuse to register memory of this size. */
  volatile long refusedReceivingSize;

  /** The error that a refused registration throws, or null for a TransportFailure. */
  volatile Error error;

  /** Whether the network was closed. */
  volatile boolean closed;

  /** Closing a sending end throws an exception that a network must not throw. */
  volatile boolean closesBadly;

  private final class Memory implements NetMemory {
    private final NetMemory registered;
    private final long size;

    Memory(NetMemory registered, long size) {
      this.registered = registered;
      this.size = size;
      registrations.merge(size, 1, Integer::sum);
    }

    @Override
    public void close() {
      refuse(
          size == stuckSize && stuckAtMost.getAndDecrement() > 0,
          "the memory can't be deregistered");
      registered.close();
      registrations.merge(size, -1, Integer::sum);
    }
  }

  private static NetMemory[] registered(NetMemory[] memories) {
    return Arrays.stream(memories)
        .map(memory -> ((Memory) memory).registered)
        .toArray(NetMemory[]::new);
  }

  private record Send(NetRequest request, BooleanSupplier held) implements NetRequest {
    @Override
    public boolean test() {
      return !held.getAsBoolean() && request.test();
    }

    @Override
    public long size(int index) {
      return request.size(index);
    }
  }

  private static void refuse(boolean refused, String what) {
    if (refused) {
      throw new TransportFailure(FluxCclException.NO_RANK, what);
    }
  }

  private void refuseToRegister(boolean refused) {
    if (refused && error != null) {
      throw error;
    }
    refuse(refused, "the memory can't be registered");
  }

  private final class Sender implements NetSendComm {
    private final NetSendComm comm;

    Sender(NetSendComm comm) {
      this.comm = comm;
      openEnds.incrementAndGet();
    }

    @Override
    public int device() {
      return comm.device();
    }

    @Override
    public String peer() {
      return comm.peer();
    }

    @Override
    public NetMemory register(long address, long size, PointerType type) {
      refuseToRegister(size == refusedSize);
      return new Memory(comm.register(address, size, type), size);
    }

    @Override
    public NetMemory registerDmaBuf(
        long address, long size, PointerType type, long offset, int fileDescriptor) {
      return comm.registerDmaBuf(address, size, type, offset, fileDescriptor);
    }

    @Override
    public NetRequest isend(long address, long size, int tag, NetMemory memory) {
      LongConsumer before = beforeSend;
      if (before != null) {
        before.accept(size);
      }
      NetRequest request = comm.isend(address, size, tag, ((Memory) memory).registered);
      return request == null ? null : new Send(request, () -> size == unfinishedSize);
    }

    @Override
    public void close() {
      comm.close();
      openEnds.decrementAndGet();
      if (closesBadly) {
        throw new IllegalStateException("the sending end can't be closed");
      }
    }
  }

  private final class Receiver implements NetRecvComm {
    private final NetRecvComm comm;

    Receiver(NetRecvComm comm) {
      this.comm = comm;
      openEnds.incrementAndGet();
    }

    @Override
    public int device() {
      return comm.device();
    }

    @Override
    public String peer() {
      return comm.peer();
    }

    @Override
    public NetMemory register(long address, long size, PointerType type) {
      refuseToRegister(size == refusedReceivingSize);
      return new Memory(comm.register(address, size, type), size);
    }

    @Override
    public NetMemory registerDmaBuf(
        long address, long size, PointerType type, long offset, int fileDescriptor) {
      return comm.registerDmaBuf(address, size, type, offset, fileDescriptor);
    }

    @Override
    public NetRequest irecv(long address, long size, int tag, NetMemory memory) {
      return comm.irecv(address, size, tag, ((Memory) memory).registered);
    }

    @Override
    public NetRequest irecv(
        int n, long[] addresses, long[] sizes, int[] tags, NetMemory[] memories) {
      return comm.irecv(n, addresses, sizes, tags, registered(memories));
    }

    @Override
    public NetRequest iflush(int n, long[] addresses, long[] sizes, NetMemory[] memories) {
      return comm.iflush(n, addresses, sizes, registered(memories));
    }

    @Override
    public void close() {
      comm.close();
      openEnds.decrementAndGet();
    }
  }

  private final class Listener implements NetListenComm {
    private final NetListenComm comm;

    Listener(NetListenComm comm) {
      this.comm = comm;
    }

    @Override
    public byte[] handle() {
      return comm.handle();
    }

    @Override
    public NetRecvComm accept() {
      NetRecvComm accepted = comm.accept();
      if (accepted == null) {
        return null;
      }
      Runnable before = beforeAccepted;
      if (before != null) {
        before.run();
      }
      return new Receiver(accepted);
    }

    @Override
    public void close() {
      comm.close();
    }
  }

  @Override
  public String name() {
    return plugin.name();
  }

  @Override
  public int devices() {
    return plugin.devices();
  }

  @Override
  public NetProperties properties(int device) {
    return plugin.properties(device);
  }

  @Override
  public NetListenComm listen(int device) {
    return new Listener(plugin.listen(device));
  }

  @Override
  public NetSendComm connect(int device, NetHandle handle) {
    NetSendComm comm = plugin.connect(device, handle);
    return comm == null ? null : new Sender(comm);
  }

  @Override
  public void close() {
    closed = true;
    plugin.close();
  }
}

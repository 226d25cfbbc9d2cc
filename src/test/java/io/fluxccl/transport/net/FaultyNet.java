// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import io.fluxccl.FluxCclException;
import io.fluxccl.TransportFailure;
import io.fluxccl.netplugin.NetHandle;
import io.fluxccl.netplugin.NetListenComm;
import io.fluxccl.netplugin.NetMemory;
import io.fluxccl.netplugin.NetPlugin;
import io.fluxccl.netplugin.NetRecvComm;
import io.fluxccl.netplugin.NetRequest;
import io.fluxccl.netplugin.NetSendComm;
import io.fluxccl.netplugin.PointerType;
import io.fluxccl.netplugin.tcp.TcpNetPlugin;
import io.fluxccl.netplugin.tcp.TcpOptions;
import io.fluxccl.transport.Overlay;
import java.util.Arrays;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.LongConsumer;
import java.util.function.Supplier;

/** The TCP network with configurable faults: its ends can refuse or delay operations. */
final class FaultyNet {
  private final NetPlugin tcp = new TcpNetPlugin(TcpOptions.DEFAULT.withInterfaces("lo"));

  /** The network. */
  final NetPlugin plugin = Overlay.of(NetPlugin.class, this, tcp);

  /** Sending ends refuse to register memory of this size. */
  volatile long refusedSize;

  /** Receiving ends refuse to register memory of this size. */
  volatile long refusedReceivingSize;

  /** The error that a refused registration throws, or null for a TransportFailure. */
  volatile Error error;

  /** Deregistering memory of this size fails. */
  volatile long stuckSize;

  /** Maximum number of deregistrations that fail. */
  final AtomicInteger stuckAtMost = new AtomicInteger(Integer.MAX_VALUE);

  /** Sends of this size never complete. */
  volatile long unfinishedSize;

  /** Sends of this size lack their last byte. */
  volatile long shortenedSize;

  /** Called with the size of each send before it. */
  volatile LongConsumer beforeSend = size -> {};

  /** Run by a listener before it returns an accepted connection. */
  volatile Runnable beforeAccepted = () -> {};

  /** Closing a sending end throws an exception that a network must not throw. */
  volatile boolean closesBadly;

  /** Whether the network was closed. */
  volatile boolean closed;

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

  /** The sizes of all memory that was registered. */
  Set<Long> registeredSizes() {
    return Set.copyOf(registrations.keySet());
  }

  private static void refuse(boolean refused, String what) {
    if (refused) {
      throw new TransportFailure(FluxCclException.NO_RANK, what);
    }
  }

  /** Returns a request that is not done while sends of its size never complete. */
  private NetRequest held(NetRequest request, long size) {
    Object hold =
        new Object() {
          boolean test() {
            return size != unfinishedSize && request.test();
          }
        };
    return Overlay.of(NetRequest.class, hold, request);
  }

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

  private static NetMemory registered(NetMemory memory) {
    return ((Memory) memory).registered;
  }

  private static NetMemory[] registered(NetMemory[] memories) {
    return Arrays.stream(memories).map(FaultyNet::registered).toArray(NetMemory[]::new);
  }

  private NetMemory register(boolean refused, Supplier<NetMemory> registering, long size) {
    if (refused && error != null) {
      throw error;
    }
    refuse(refused, "the memory can't be registered");
    return new Memory(registering.get(), size);
  }

  private NetSendComm faulty(NetSendComm comm) {
    openEnds.incrementAndGet();
    Object faults =
        new Object() {
          NetMemory register(long address, long size, PointerType type) {
            return FaultyNet.this.register(
                size == refusedSize, () -> comm.register(address, size, type), size);
          }

          NetRequest isend(long address, long size, int tag, NetMemory memory) {
            beforeSend.accept(size);
            long sent = size == shortenedSize ? size - 1 : size;
            NetRequest request = comm.isend(address, sent, tag, registered(memory));
            return request == null ? null : held(request, size);
          }

          void close() {
            comm.close();
            openEnds.decrementAndGet();
            if (closesBadly) {
              throw new IllegalStateException("the sending end can't be closed");
            }
          }
        };
    return Overlay.of(NetSendComm.class, faults, comm);
  }

  private NetRecvComm faulty(NetRecvComm comm) {
    openEnds.incrementAndGet();
    Object faults =
        new Object() {
          NetMemory register(long address, long size, PointerType type) {
            return FaultyNet.this.register(
                size == refusedReceivingSize, () -> comm.register(address, size, type), size);
          }

          NetRequest irecv(long address, long size, int tag, NetMemory memory) {
            return comm.irecv(address, size, tag, registered(memory));
          }

          NetRequest irecv(
              int n, long[] addresses, long[] sizes, int[] tags, NetMemory[] memories) {
            return comm.irecv(n, addresses, sizes, tags, registered(memories));
          }

          NetRequest iflush(int n, long[] addresses, long[] sizes, NetMemory[] memories) {
            return comm.iflush(n, addresses, sizes, registered(memories));
          }

          void close() {
            comm.close();
            openEnds.decrementAndGet();
          }
        };
    return Overlay.of(NetRecvComm.class, faults, comm);
  }

  NetListenComm listen(int device) {
    NetListenComm listener = tcp.listen(device);
    Object faults =
        new Object() {
          NetRecvComm accept() {
            NetRecvComm accepted = listener.accept();
            if (accepted == null) {
              return null;
            }
            beforeAccepted.run();
            return faulty(accepted);
          }
        };
    return Overlay.of(NetListenComm.class, faults, listener);
  }

  NetSendComm connect(int device, NetHandle handle) {
    NetSendComm comm = tcp.connect(device, handle);
    return comm == null ? null : faulty(comm);
  }

  void close() {
    closed = true;
    tcp.close();
  }
}

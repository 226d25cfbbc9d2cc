// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.benchmarks;

import com.sun.management.ThreadMXBean;
import io.fluxccl.netplugin.NetHandle;
import io.fluxccl.netplugin.NetListenComm;
import io.fluxccl.netplugin.NetMemory;
import io.fluxccl.netplugin.NetRecvComm;
import io.fluxccl.netplugin.NetRequest;
import io.fluxccl.netplugin.NetSendComm;
import io.fluxccl.netplugin.PointerType;
import io.fluxccl.netplugin.tcp.TcpNetPlugin;
import io.fluxccl.netplugin.tcp.TcpOptions;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.concurrent.CompletableFuture;
import org.agrona.BufferUtil;
import org.agrona.concurrent.BackoffIdleStrategy;
import org.agrona.concurrent.IdleStrategy;

/**
 * The TCP network over the loopback, one connection between two threads of this JVM: GB/s of
 * messages with several in flight, bytes allocated for each, and the round trip of a small one.
 *
 * <p>Arguments: streams (1), I/O threads (1), KiB (512), messages in flight (8), seconds (5), round
 * trips (20000).
 */
public final class TcpNetLoopback {
  private static final int SMALL = 1024;

  private final TcpNetPlugin network;

  private TcpNetLoopback(TcpNetPlugin network) {
    this.network = network;
  }

  private record Pair(NetSendComm send, NetRecvComm receive) {}

  /** Runs it. */
  public static void main(String[] arguments) throws Exception {
    int[] given = Arrays.stream(arguments).mapToInt(Integer::parseInt).toArray();
    int streams = given.length > 0 ? given[0] : 1;
    int threads = given.length > 1 ? given[1] : 1;
    int size = (given.length > 2 ? given[2] : 512) << 10;
    int depth = given.length > 3 ? given[3] : 8;
    int seconds = given.length > 4 ? given[4] : 5;
    int roundTrips = given.length > 5 ? given[5] : 20_000;
    TcpOptions options = TcpOptions.DEFAULT.withInterfaces("=lo").withStreams(streams, threads);
    try (TcpNetPlugin network = new TcpNetPlugin(options)) {
      TcpNetLoopback loopback = new TcpNetLoopback(network);
      System.out.printf("TCP loopback, %d streams, %d I/O threads%n", streams, threads);
      loopback.bandwidth(size, depth, 1, false);
      loopback.bandwidth(size, depth, seconds, true);
      if (roundTrips > 0) {
        loopback.roundTrips(roundTrips, false);
        loopback.roundTrips(roundTrips, true);
      }
    }
  }

  private Pair connect() {
    NetListenComm listener = network.listen(0);
    NetHandle handle = new NetHandle(listener.handle());
    NetSendComm send = null;
    NetRecvComm receive = null;
    while (send == null || receive == null) {
      send = send == null ? network.connect(0, handle) : send;
      receive = receive == null ? listener.accept() : receive;
    }
    listener.close();
    return new Pair(send, receive);
  }

  private interface Post {
    NetRequest post(int index);
  }

  /** Keeps {@code depth} requests in flight until the time is over, or {@code count} are done. */
  private static long pump(Post post, int depth, long count, long untilNanos) {
    IdleStrategy idle = new BackoffIdleStrategy(20, 1, 5_000, 50_000);
    NetRequest[] inFlight = new NetRequest[depth];
    long posted = 0;
    long done = 0;
    boolean over = false;
    while (!over || done < posted) {
      over = over || posted == count || System.nanoTime() - untilNanos > 0;
      while (!over && posted - done < depth && posted < count) {
        int slot = (int) (posted % depth);
        inFlight[slot] = post.post(slot);
        posted++;
      }
      if (done < posted && inFlight[(int) (done % depth)].test()) {
        done++;
        idle.reset();
      } else {
        idle.idle();
      }
    }
    return done;
  }

  private void bandwidth(int size, int depth, int seconds, boolean print) throws Exception {
    Pair pair = connect();
    ByteBuffer memory = BufferUtil.allocateDirectAligned(2 * depth * size, 4096);
    long address = BufferUtil.address(memory);
    NetMemory from = pair.send.register(address, (long) depth * size, PointerType.HOST);
    long target = address + (long) depth * size;
    NetMemory to = pair.receive.register(target, (long) depth * size, PointerType.HOST);
    long start = System.nanoTime();
    long end = start + seconds * 1_000_000_000L;
    long[] allocated = new long[1];
    CompletableFuture<Long> sender =
        CompletableFuture.supplyAsync(
            () -> {
              long before = allocatedBytes();
              long sent =
                  pump(
                      slot -> pair.send.isend(address + (long) slot * size, size, 0, from),
                      depth,
                      Long.MAX_VALUE,
                      end);
              allocated[0] = allocatedBytes() - before;
              // The end: an empty message.
              pump(slot -> pair.send.isend(address, 0, 0, from), 1, 1, Long.MAX_VALUE);
              return sent;
            });
    long received = receiveUntilEmpty(pair.receive, target, size, depth, to);
    double time = (System.nanoTime() - start) / 1e9;
    if (received != sender.get()) {
      throw new IllegalStateException(received + " received of " + sender.get());
    }
    if (print) {
      System.out.printf(
          "%d KiB x %d in flight: %.2f GB/s (%.2f bytes allocated by the sender for each)%n",
          size >> 10,
          depth,
          received * (double) size / time / 1e9,
          allocated[0] / (double) received);
    }
    pair.send.close();
    pair.receive.close();
  }

  private static long receiveUntilEmpty(
      NetRecvComm receive, long target, int size, int depth, NetMemory to) {
    IdleStrategy idle = new BackoffIdleStrategy(20, 1, 5_000, 50_000);
    NetRequest[] inFlight = new NetRequest[depth];
    for (int i = 0; i < depth; i++) {
      inFlight[i] = receive.irecv(target + (long) i * size, size, 0, to);
    }
    for (long done = 0; ; ) {
      int slot = (int) (done % depth);
      if (!inFlight[slot].test()) {
        idle.idle();
        continue;
      }
      idle.reset();
      if (inFlight[slot].size(0) == 0) {
        return done;
      }
      inFlight[slot] = receive.irecv(target + (long) slot * size, size, 0, to);
      done++;
    }
  }

  private void roundTrips(int count, boolean print) throws Exception {
    Pair there = connect();
    Pair back = connect();
    ByteBuffer memory = BufferUtil.allocateDirectAligned(4 * SMALL, 64);
    long address = BufferUtil.address(memory);
    CompletableFuture<Void> echo =
        CompletableFuture.runAsync(
            () -> {
              for (int i = 0; i < count; i++) {
                receive(there.receive, address);
                send(back.send, address);
              }
            });
    long[] nanos = new long[count];
    for (int i = 0; i < count; i++) {
      long start = System.nanoTime();
      send(there.send, address + SMALL);
      receive(back.receive, address + SMALL);
      nanos[i] = System.nanoTime() - start;
    }
    echo.get();
    Arrays.sort(nanos);
    if (print) {
      System.out.printf(
          "1 KiB, one way: p50 %.1f us, p99 %.1f us%n",
          nanos[count / 2] / 2e3, nanos[count * 99 / 100] / 2e3);
    }
  }

  private static void send(NetSendComm comm, long address) {
    try (NetMemory memory = comm.register(address, SMALL, PointerType.HOST)) {
      await(comm.isend(address, SMALL, 0, memory));
    }
  }

  private static void receive(NetRecvComm comm, long address) {
    try (NetMemory memory = comm.register(address, SMALL, PointerType.HOST)) {
      await(comm.irecv(address, SMALL, 0, memory));
    }
  }

  private static void await(NetRequest request) {
    while (!request.test()) {
      Thread.onSpinWait();
    }
  }

  private static long allocatedBytes() {
    return ((ThreadMXBean) ManagementFactory.getThreadMXBean())
        .getThreadAllocatedBytes(Thread.currentThread().getId());
  }
}

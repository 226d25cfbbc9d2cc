// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.benchmarks;

import io.fluxccl.Text;
import io.fluxccl.netplugin.NetHandle;
import io.fluxccl.netplugin.NetListenComm;
import io.fluxccl.netplugin.NetMemory;
import io.fluxccl.netplugin.NetRecvComm;
import io.fluxccl.netplugin.NetRequest;
import io.fluxccl.netplugin.NetSendComm;
import io.fluxccl.netplugin.PointerType;
import io.fluxccl.netplugin.tcp.TcpNetPlugin;
import io.fluxccl.netplugin.tcp.TcpOptions;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.function.IntFunction;
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
final class TcpNetLoopback {
  private static final int SMALL = 1024;

  private final TcpNetPlugin network;

  private TcpNetLoopback(TcpNetPlugin network) {
    this.network = network;
  }

  private record Pair(NetSendComm send, NetRecvComm receive) {}

  static final Bench BENCH =
      Bench.onHost(
          "tcp",
          "the TCP network for NCCL over the loopback: messages in flight, round trips",
          TcpNetLoopback::run);

  private static void run(Bench.Rows rows, List<String> arguments) throws Exception {
    int[] given = {1, 1, 512, 8, 5, 20_000};
    for (int i = 0; i < arguments.size(); i++) {
      given[i] = Integer.parseInt(arguments.get(i));
    }
    TcpOptions options = TcpOptions.DEFAULT.withInterfaces("=lo").withStreams(given[0], given[1]);
    try (TcpNetPlugin network = new TcpNetPlugin(options)) {
      TcpNetLoopback loopback = new TcpNetLoopback(network);
      String streams = given[0] + " streams, " + given[1] + " I/O threads, ";
      int size = given[2] << 10;
      long warmUp = (1L << 30) / size;
      double micros = loopback.stream(size, given[3], warmUp, new double[1]).micros();
      long count = Math.max(1, (long) (given[4] * 1e6 / micros));
      double[] allocated = new double[1];
      micros = loopback.stream(size, given[3], count, allocated).micros();
      rows.add(
          Text.of("%s%d KiB x %d in flight", streams, given[2], given[3]),
          size / micros / 1e3,
          "GB/s",
          "",
          Text.of("%.2f bytes allocated by the sender for each", allocated[0]));
      if (given[5] > 0) {
        rows.percentiles(streams + "1 KiB, one way", loopback.oneWay(given[5]), "us", 0.5, 0.99);
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

  /**
   * Posts a number of requests, of which {@code depth} are in flight; returns when all are done.
   */
  private static void pump(IntFunction<NetRequest> post, int depth, long count) {
    IdleStrategy idle = new BackoffIdleStrategy(20, 1, 5_000, 50_000);
    NetRequest[] inFlight = new NetRequest[depth];
    long posted = 0;
    for (long done = 0; done < count; ) {
      while (posted < count && posted - done < depth) {
        int slot = (int) (posted++ % depth);
        inFlight[slot] = post.apply(slot);
      }
      if (inFlight[(int) (done % depth)].test()) {
        done++;
        idle.reset();
      } else {
        idle.idle();
      }
    }
  }

  /** Sends a number of messages; returns the receiver's cost of each, stores the sender's bytes. */
  private Samples.Cost stream(int size, int depth, long count, double[] allocated)
      throws Exception {
    Pair pair = connect();
    long half = (long) depth * size;
    ByteBuffer memory = BufferUtil.allocateDirectAligned((int) (2 * half), 4096);
    long source = BufferUtil.address(memory);
    long target = source + half;
    NetMemory from = pair.send.register(source, half, PointerType.HOST);
    NetMemory to = pair.receive.register(target, half, PointerType.HOST);
    IntFunction<NetRequest> send =
        slot -> pair.send.isend(source + (long) slot * size, size, 0, from);
    IntFunction<NetRequest> receive =
        slot -> pair.receive.irecv(target + (long) slot * size, size, 0, to);
    CompletableFuture<Double> sender =
        Samples.async(() -> Samples.cost(count, () -> pump(send, depth, count)).bytes());
    Samples.Cost cost = Samples.cost(count, () -> pump(receive, depth, count));
    allocated[0] = sender.get();
    pair.send.close();
    pair.receive.close();
    return cost;
  }

  /** Returns the microseconds of each message of a ping-pong. */
  private double[] oneWay(int count) throws Exception {
    Pair there = connect();
    Pair back = connect();
    ByteBuffer memory = BufferUtil.allocateDirectAligned(4 * SMALL, 64);
    long address = BufferUtil.address(memory);
    CompletableFuture<Double> echo =
        Samples.async(
            () -> {
              for (int i = 0; i < 2 * count; i++) {
                receive(there.receive, address);
                send(back.send, address);
              }
              return 0;
            });
    Samples.Action roundTrip =
        () -> {
          send(there.send, address + SMALL);
          receive(back.receive, address + SMALL);
        };
    double[] micros = Samples.micros(count, count, roundTrip);
    echo.get();
    return Arrays.stream(micros).map(both -> both / 2).toArray();
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
}

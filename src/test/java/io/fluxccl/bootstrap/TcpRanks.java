// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.FluxCclException;
import io.fluxccl.bootstrap.BootstrapFrame.DumpMissing;
import io.fluxccl.testing.FailureAssertions;
import io.fluxccl.testing.Ports;
import io.netty.buffer.ByteBuf;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.function.Supplier;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.agrona.CloseHelper;

/** Ranks over TCP in one JVM, for tests. */
final class TcpRanks {
  private TcpRanks() {}

  static List<TcpBootstrap> create(int nRanks, BootstrapOptions options) {
    return IntStream.range(0, nRanks)
        .mapToObj(rank -> TcpBootstrap.create(rank, nRanks, options))
        .collect(Collectors.toList());
  }

  static List<TcpBootstrap> byId(int nRanks, BootstrapOptions options) {
    UniqueId id = TcpBootstrap.createUniqueId(options);
    List<TcpBootstrap> ranks = create(nRanks, options);
    BootstrapContract.await(BootstrapContract.onAll(ranks, each -> each.initialize(id)));
    return ranks;
  }

  static List<TcpBootstrap> byAddress(int nRanks, BootstrapOptions options) {
    return byAddress(nRanks, options, "127.0.0.1:" + Ports.reserved());
  }

  static List<TcpBootstrap> byAddress(int nRanks, BootstrapOptions options, String address) {
    List<TcpBootstrap> ranks = create(nRanks, options);
    BootstrapContract.await(BootstrapContract.onAll(ranks, each -> each.initialize(address)));
    return ranks;
  }

  /** Closes every socket of a rank and sends nothing, as if its process had died. */
  static CompletableFuture<Void> kill(TcpBootstrap rank) {
    return CompletableFuture.runAsync(
        () -> {
          rank.job.kill();
          if (rank.root != null) {
            rank.root.kill();
          }
        },
        rank.loop);
  }

  /** Returns the ranks that have not joined, as far as a rank knows. */
  static List<Integer> missing(TcpBootstrap rank) {
    return BootstrapContract.await(
        CompletableFuture.supplyAsync(
            () -> ((DumpMissing) rank.job.answer(false, loopback(0))).missing(), rank.loop));
  }

  /** Encodes a frame as on the wire, with its length first. */
  static byte[] encode(BootstrapFrame frame) {
    ByteBuf body = BootstrapFrameCodec.encode(frame);
    byte[] bytes = new byte[Frames.LENGTH_BYTES + body.readableBytes()];
    ByteBuffer.wrap(bytes).putInt(body.readableBytes());
    body.readBytes(bytes, Frames.LENGTH_BYTES, body.readableBytes());
    body.release();
    return bytes;
  }

  static InetSocketAddress loopback(int port) {
    return new InetSocketAddress(InetAddress.getLoopbackAddress(), port);
  }

  /** Connects to a root as soon as it listens. */
  static Socket knock(InetSocketAddress root) throws IOException {
    while (true) {
      Socket socket = new Socket();
      try {
        socket.connect(root, 10_000);
        socket.setSoTimeout(60_000);
        return socket;
      } catch (IOException e) {
        socket.close(); // the root does not listen yet
      }
    }
  }

  /** Returns the failure of a rank that joins at an address within a limit. */
  static FluxCclException failureOfJoining(String address, Duration limit) {
    BootstrapOptions options = BootstrapOptions.builder().timeout(limit).build();
    try (TcpBootstrap rank = TcpBootstrap.create(1, 2, options)) {
      return FailureAssertions.failureOf(rank.initialize(address));
    }
  }

  /** Asserts a bound; the best of four attempts counts, because the machine may be busy. */
  static void assertTakesLessThan(Duration bound, Supplier<Duration> attempt) {
    Duration best = attempt.get();
    for (int i = 0; i < 3 && best.compareTo(bound) >= 0; i++) {
      Duration next = attempt.get();
      best = next.compareTo(best) < 0 ? next : best;
    }
    assertThat(best).isLessThan(bound);
  }

  /** A process of another kind, which serves each client that connects. */
  static final class ForeignService implements AutoCloseable {
    interface Answer {
      void to(Socket client) throws IOException;
    }

    private final List<Socket> clients = new CopyOnWriteArrayList<>();
    private final ServerSocket listener = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());

    ForeignService(Answer answer) throws IOException {
      Thread thread = new Thread(() -> serve(answer), "foreign-service");
      thread.setDaemon(true);
      thread.start();
    }

    private void serve(Answer answer) {
      while (!listener.isClosed()) {
        try {
          Socket client = listener.accept();
          clients.add(client);
          answer.to(client);
        } catch (IOException e) {
          continue; // the client reconnects, or the test has ended
        }
      }
    }

    String address() {
      return "127.0.0.1:" + listener.getLocalPort();
    }

    @Override
    public void close() {
      CloseHelper.closeAll(listener);
      CloseHelper.closeAll(clients);
    }
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import static io.fluxccl.bootstrap.BootstrapContract.await;
import static io.fluxccl.bootstrap.BootstrapContract.onAll;
import static io.fluxccl.bootstrap.BootstrapContract.soon;
import static io.fluxccl.bootstrap.TcpRanks.assertTakesLessThan;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.bootstrap.BootstrapFrame.LinkKind;
import io.fluxccl.testing.Ports;
import io.fluxccl.testing.TestJvms;
import io.fluxccl.testkit.ProcessRank;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** A job without a secret while another process floods its root with connections. */
@Timeout(90)
class FloodTest {
  private static final int RANKS = 3;
  private static final int IDLE = 3_000;
  private static final int AT_ONCE = 64;
  private static final int BARRIERS = 20;

  /** The time that all barriers may take together. */
  private static final Duration MOST = Duration.ofSeconds(3);

  /** The bound: with the flood a barrier takes at most 150 ms on average. */
  @Tag("timed")
  @Test
  void shouldServeItsRanksDuringAFloodOfConnections() throws Exception {
    BootstrapOptions options = BootstrapOptions.builder().secret(null).build();
    String address = "127.0.0.1:" + Ports.reserved();
    List<TcpBootstrap> ranks = TcpRanks.byAddress(RANKS, options, address);
    List<Socket> idle = new ArrayList<>();
    try (ServerSocket others = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
        ProcessRank flood = TestJvms.start(Flood.class, address)) {
      // They lengthen the kernel's socket tables, in which the root looks up owners.
      connect(others, idle);
      assertThat(flood.readLine()).isEqualTo("flooding");
      assertTakesLessThan(MOST, () -> barriers(ranks));
    } finally {
      for (Socket each : idle) {
        each.close();
      }
      await(onAll(ranks, TcpBootstrap::closeAsync));
    }
  }

  private static Duration barriers(List<TcpBootstrap> ranks) {
    long start = System.nanoTime();
    for (int i = 0; i < BARRIERS; i++) {
      await(onAll(ranks, each -> each.barrier(soon())));
      assertThat(ranks).allMatch(each -> each.unresponsiveRank().isEmpty());
    }
    return Duration.ofNanos(System.nanoTime() - start);
  }

  private static void connect(ServerSocket others, List<Socket> idle) throws IOException {
    for (int i = 0; i < IDLE; i++) {
      idle.add(new Socket(others.getInetAddress(), others.getLocalPort()));
      idle.add(others.accept());
    }
  }

  /** Another process of the same user, which can authenticate like a rank without a secret. */
  static final class Flood {
    private static final AtomicInteger ANSWERS = new AtomicInteger();

    private Flood() {}

    public static void main(String[] args) {
      int port = Integer.parseInt(args[0].substring(args[0].indexOf(':') + 1));
      for (int i = 0; i < AT_ONCE; i++) {
        new Thread(() -> connectAgainAndAgain(port)).start();
      }
    }

    private static void connectAgainAndAgain(int port) {
      while (true) {
        try (RawPeer peer = new RawPeer()) {
          peer.connect(LinkKind.LINK, TcpRanks.loopback(port));
          if (ANSWERS.incrementAndGet() == 2 * AT_ONCE) {
            System.out.println("flooding");
          }
        } catch (IOException e) {
          continue; // the root has dropped this connection
        }
      }
    }
  }
}

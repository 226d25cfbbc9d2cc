// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.FluxCclException;
import io.fluxccl.RemoteFailure;
import io.fluxccl.TransportFailure;
import io.fluxccl.transport.EndpointConfig;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.tcp.PortRange;
import io.fluxccl.transport.tcp.TcpServer;
import io.fluxccl.transport.tcp.TcpSocket;
import java.net.InetAddress;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.Random;
import java.util.concurrent.Callable;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.agrona.BufferUtil;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Two ends of a link, which one thread drives. */
@Timeout(120)
class TcpLinkTest {
  private static final ByteBuffer HEAD =
      BufferUtil.allocateDirectAligned(ControlMessage.MAX_BYTES, 64);

  private final End low = new End(0, 1);
  private final End high = new End(1, 0);
  private final List<End> ends = List.of(low, high);

  /** An end, and what its connection would do. */
  private static final class End {
    final TcpNetwork network;
    final ResumableLink link;
    boolean open;
    boolean closed;

    /** The number of messages that this end says it has received in full. */
    long received;

    End(int rank, int peer) {
      InetAddress loopback = InetAddress.getLoopbackAddress();
      network = new TcpNetwork(rank, loopback, PortRange.ANY, Optional.empty());
      link = network.listen(peer, EndpointConfig.of(Transport.ETHERNET));
    }

    void restart() {
      open = false;
      link.restart(received, System.nanoTime());
    }

    void step() {
      network.tend(System.nanoTime());
      if (closed) {
        return;
      }
      if (!open) {
        open = link.poll(System.nanoTime());
      } else if (link.isChallenged() || isLost()) {
        restart();
      }
    }

    private boolean isLost() {
      try {
        link.receiveHead(
            BufferUtil.address(HEAD),
            head -> {
              throw new AssertionError("no message was sent");
            });
        return false;
      } catch (FluxCclException e) {
        return true;
      }
    }

    void close() {
      closed = true;
      link.close();
    }
  }

  /** A listener that does not answer, and may refuse each call for a reason. */
  private static final class Calls implements TcpServer.Listener {
    final byte[] token = TcpServer.newToken();
    final List<Long> rounds = new ArrayList<>();
    final List<TcpSocket> sockets = new ArrayList<>();
    private final String refusal;

    Calls(String refusal) {
      this.refusal = refusal;
    }

    @Override
    public byte[] token() {
      return token;
    }

    @Override
    public String take(TcpSocket socket, ByteBuffer hello, long now) {
      rounds.add(TcpLink.Hello.decode(hello).round());
      sockets.add(socket);
      return refusal;
    }
  }

  private void connect() {
    low.link.connect(high.link.address());
    high.link.connect(low.link.address());
    awaitOpen();
  }

  private void awaitOpen() {
    Awaitility.await()
        .pollInSameThread()
        .until(
            () -> {
              ends.forEach(End::step);
              return low.open && high.open && !low.link.isChallenged() && !high.link.isChallenged();
            });
  }

  @AfterEach
  void close() {
    ends.forEach(End::close);
    ends.forEach(end -> end.network.close());
  }

  @Test
  void shouldLearnThePeersCountWhicheverEndNoticesTheLoss() {
    connect();
    Random random = new Random(5);
    for (int round = 0; round < 40; round++) {
      int who = 1 + random.nextInt(3);
      for (int i = 0; i < 2; i++) {
        End end = ends.get(i);
        end.received += random.nextInt(3);
        if ((who & 1 << i) != 0) {
          end.restart();
        }
        for (int step = random.nextInt(4); step > 0; step--) {
          ends.get(random.nextInt(2)).step();
        }
      }
      awaitOpen();
      // The ends may notice a loss at different times: the latest hellos count.
      low.restart();
      high.restart();
      awaitOpen();
      assertThat(low.link.peersCount()).isEqualTo(high.received);
      assertThat(high.link.peersCount()).isEqualTo(low.received);
    }
  }

  @Test
  void shouldBeCalledIfOnlyTheListeningEndKnowsOfTheLoss() {
    connect();
    high.restart();
    Awaitility.await()
        .pollInSameThread()
        .until(
            () -> {
              high.step();
              low.network.tend(System.nanoTime());
              return low.link.isChallenged();
            });
    awaitOpen();
  }

  @Test
  void shouldFailOnceTheDialingEndIsClosed() {
    assertFails(low, high);
  }

  @Test
  void shouldFailOnceTheListeningEndIsClosed() {
    assertFails(high, low);
  }

  private void assertFails(End gone, End left) {
    connect();
    gone.close();
    left.restart();
    assertThatThrownBy(this::stepForEver).isInstanceOf(RemoteFailure.class);
  }

  private void stepForEver() {
    Awaitility.await()
        .pollInSameThread()
        .until(
            () -> {
              ends.forEach(End::step);
              return false;
            });
  }

  @Test
  void shouldRefuseAnAddressThatIsNone() {
    assertThatThrownBy(() -> low.link.connect(new byte[80])).isInstanceOf(TransportFailure.class);
  }

  /** Otherwise one of the calls might arrive late, and replace a healthy link. */
  @Test
  void shouldCallWithOneRoundUntilALinkOpens() {
    Calls calls = new Calls("is a call");
    low.network.server().add(calls);
    high.link.connect(low.network.server().handle(calls.token).encode());
    low.close();
    assertThatThrownBy(this::stepForEver).isInstanceOf(RemoteFailure.class);
    assertThat(calls.rounds).containsExactly(0L, 0L, 0L);
  }

  @Test
  void shouldResumeThoughItsListenerFails() {
    connect();
    low.network.close();
    low.restart();
    // After 100 failed accepts in a row the listener reports the error.
    long now = System.nanoTime();
    for (int ms = 0; ms < 200; ms++) {
      assertThat(low.link.poll(now + TimeUnit.MILLISECONDS.toNanos(ms))).isFalse();
    }
    assertThat(low.link.hindrance()).hasMessageContaining("accept on");
    Awaitility.await()
        .pollInSameThread()
        .until(
            () -> {
              high.step();
              low.open = low.link.poll(System.nanoTime());
              return low.open;
            });
  }

  @Test
  void shouldFailALinkThatConnectsButNotTheAgentIfTheListenerFails() {
    high.link.connect(low.link.address());
    high.network.close();
    long now = System.nanoTime();
    for (int tend = 1; tend <= 200; tend++) {
      high.network.tend(now + TimeUnit.MILLISECONDS.toNanos(tend * 25));
    }
    assertThatThrownBy(() -> high.link.poll(now + TimeUnit.SECONDS.toNanos(6)))
        .isInstanceOf(TransportFailure.class)
        .hasMessageContaining("accept on");
  }

  @Test
  void shouldUseAnAnswerThatArrivedDuringALongPause() {
    connect();
    low.restart();
    long now = System.nanoTime();
    awaitTrue(
        () -> {
          low.link.poll(now);
          high.network.tend(System.nanoTime());
          return high.link.isChallenged();
        });
    awaitTrue(
        () -> {
          high.step();
          return high.open;
        });
    LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(20));
    low.open = low.link.poll(now + TimeUnit.SECONDS.toNanos(10));
    assertThat(low.open).isTrue();
  }

  @Test
  void shouldLimitTheFirstConnectByItsDeadlineOnly() {
    Calls calls = new Calls(null);
    high.network.server().add(calls);
    low.link.connect(high.network.server().handle(calls.token).encode());
    long now = System.nanoTime();
    for (int second = 0; second < 20; second++) {
      long then = now + TimeUnit.SECONDS.toNanos(second);
      assertThat(low.link.poll(then)).isFalse();
      high.network.tend(then);
    }
    assertThat(calls.rounds).containsExactly(0L);
    calls.sockets.forEach(TcpSocket::close);
  }

  @Test
  void shouldFailOnlyAfterThreeRefusalsInARow() {
    connect();
    high.close();
    low.restart();
    long[] now = {System.nanoTime()};
    awaitRefusal(now);
    awaitRefusal(now);
    // Now the peer is silent: the dial is given up.
    for (int i = 0; i < 3; i++) {
      now[0] += TimeUnit.SECONDS.toNanos(4);
      assertThat(low.link.poll(now[0])).isFalse();
    }
    assertThat(low.link.hindrance())
        .isInstanceOf(TransportFailure.class)
        .hasMessageContainingAll("no answer in 3 s at ", "FLUXCCL_PORT_RANGE");
    awaitRefusal(now);
    awaitRefusal(now);
    assertThatThrownBy(() -> awaitRefusal(now)).isInstanceOf(RemoteFailure.class);
  }

  /** Waits until the listening end, which is closed, has refused a dial; time passes quickly. */
  private void awaitRefusal(long[] now) {
    FluxCclException before = low.link.hindrance();
    awaitTrue(
        () -> {
          now[0] += TimeUnit.MILLISECONDS.toNanos(25);
          high.network.tend(now[0]);
          low.link.poll(now[0]);
          FluxCclException hindrance = low.link.hindrance();
          return hindrance != before && hindrance instanceof RemoteFailure;
        });
  }

  private static void awaitTrue(Callable<Boolean> condition) {
    Awaitility.await().pollInSameThread().until(condition);
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.faults;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.fluxccl.testing.NativePrograms;
import io.fluxccl.testing.TestJvms;
import io.fluxccl.testkit.ProcessRank;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * Two network namespaces with a third between them, which routes their packets or drops them. Or a
 * process, the wire ({@code src/test/native/wire.c}), forwards them and delays, loses or falsifies
 * some. Needs root and Linux; other machines skip the test.
 */
final class TwoHosts implements AutoCloseable {
  private static final String NET = "10.77.";
  private static final AtomicInteger COUNT = new AtomicInteger();

  /** Why there can be no such hosts here; computed once, because it makes two. */
  private static final Optional<String> MISSING = missing();

  private final List<String> hosts;
  private final String router;

  /** Null if the packets are routed. */
  private ProcessRank wire;

  private TwoHosts(boolean routed) {
    String name = "fluxccl" + ProcessHandle.current().pid() + "-" + COUNT.getAndIncrement();
    hosts = List.of(name + "a", name + "b");
    router = name + "r";
    try {
      ip("netns add %s", router);
      for (int host = 0; host < 2; host++) {
        String at = hosts.get(host);
        ip("netns add %s", at);
        ip("-n %s link set lo up", at);
        ip("-n %s link add eth0 type veth peer name to%d", at, host);
        ip("-n %s link set to%d netns %s", at, host, router);
        // With a wire, both hosts are in one network.
        ip("-n %s address add %s/%d dev eth0", at, address(host), routed ? 24 : 16);
        ip("-n %s link set eth0 up", at);
        ip("-n %s link set to%d up", router, host);
        if (routed) {
          ip("-n %s address add %s%d.1/24 dev to%d", router, NET, host, host);
          ip("-n %s route add default via %s%d.1", at, NET, host);
        }
      }
      if (routed) {
        mend();
      }
    } catch (RuntimeException | AssertionError e) {
      close();
      throw e;
    }
  }

  /** Makes two hosts, between which packets are routed. */
  static TwoHosts routed() {
    require();
    return new TwoHosts(true);
  }

  /**
   * Makes two hosts with a wire that does nothing to packets.
   *
   * @param folder for the wire's program
   */
  static TwoHosts wired(Path folder) throws Exception {
    require();
    Path program = folder.resolve("wire");
    NativePrograms.compile(List.of("-o", program.toString(), "src/test/native/wire.c"));
    TwoHosts hosts = new TwoHosts(false);
    hosts.wire =
        TestJvms.program(hosts.inside(hosts.router, program.toString(), "to0", "to1")).startRank(0);
    assertThat(hosts.wire.readLine()).isEqualTo("ready");
    return hosts;
  }

  /** Skips the test on a machine that can't have such hosts. */
  static void require() {
    assumeTrue(MISSING.isEmpty(), () -> MISSING.orElse(""));
  }

  private static Optional<String> missing() {
    try (TwoHosts hosts = new TwoHosts(true)) {
      hosts.reset(0);
      return Optional.empty();
    } catch (RuntimeException | AssertionError e) {
      return Optional.of("no network namespaces: " + e.getMessage());
    }
  }

  /** Returns a host's address. */
  String address(int host) {
    return NET + host + ".2";
  }

  /** Returns the beginning of a command that runs on a host. */
  List<String> inside(int host) {
    return inside(hosts.get(host));
  }

  private List<String> inside(String name, String... command) {
    List<String> words = new ArrayList<>(List.of("ip", "netns", "exec", name));
    words.addAll(List.of(command));
    return words;
  }

  /** Drops all packets between the hosts, without a word to either. */
  void cut() {
    forward(0);
  }

  /** Lets packets through again. */
  void mend() {
    forward(1);
  }

  private void forward(int on) {
    String shell = "echo " + on + " > /proc/sys/net/ipv4/ip_forward";
    TestJvms.run(inside(router, "sh", "-c", shell));
  }

  /** Resets a host's connections with the other one, as a router does that has lost its state. */
  void reset(int host) {
    TestJvms.run(inside(hosts.get(host), "ss", "-K", "-t", "dst", address(1 - host)));
  }

  /** Delays each packet by this time. */
  void delay(int millis) {
    tellWire("delay " + millis);
  }

  /** Drops this many of 1000 packets. */
  void lose(int permille) {
    tellWire("drop " + permille);
  }

  /** Exchanges two words of each of the next long packets; waits until the first has passed. */
  void falsify(int packets) {
    tellWire("swap " + packets);
    assertThat(wire.readLine()).isEqualTo("swapped");
  }

  private void tellWire(String line) {
    wire.sendLine(line);
    assertThat(wire.readLine()).isEqualTo("obeyed");
  }

  private static void ip(String words, Object... values) {
    TestJvms.run(("ip " + words.formatted(values)).split(" "));
  }

  @Override
  public void close() {
    if (wire != null) {
      wire.close();
    }
    for (String each : List.of(hosts.get(0), hosts.get(1), router)) {
      try {
        ip("netns delete %s", each);
      } catch (AssertionError e) {
        continue; // it was not made
      }
    }
  }
}

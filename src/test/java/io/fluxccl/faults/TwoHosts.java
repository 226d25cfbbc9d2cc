// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.faults;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * Two network namespaces with a third between them, which routes their packets or drops them, or
 * lays a {@link Wire}. Needs root and Linux; {@link #missing} returns which other requirement is
 * missing.
 */
final class TwoHosts implements AutoCloseable {
  private static final String NET = "10.77.";
  private static final AtomicInteger COUNT = new AtomicInteger();

  private final String[] hosts;
  private final String router;

  TwoHosts() throws Exception {
    this(true);
  }

  /**
   * Makes two hosts.
   *
   * @param routed whether packets pass between them without a {@link Wire}
   */
  TwoHosts(boolean routed) throws Exception {
    String name = "fluxccl" + ProcessHandle.current().pid() + "-" + COUNT.getAndIncrement();
    hosts = new String[] {name + "a", name + "b"};
    router = name + "r";
    try {
      ip("netns add " + router);
      for (int host = 0; host < 2; host++) {
        ip("netns add " + hosts[host]);
        ip("-n " + hosts[host] + " link set lo up");
        ip("-n " + hosts[host] + " link add eth0 type veth peer name to" + host);
        ip("-n " + hosts[host] + " link set to" + host + " netns " + router);
        String prefix = routed ? "/24" : "/16"; // with a wire, one network
        ip("-n " + hosts[host] + " address add " + address(host) + prefix + " dev eth0");
        ip("-n " + hosts[host] + " link set eth0 up");
        ip("-n " + router + " link set to" + host + " up");
        if (routed) {
          ip("-n " + router + " address add " + NET + host + ".1/24 dev to" + host);
          ip("-n " + hosts[host] + " route add default via " + NET + host + ".1");
        }
      }
      if (routed) {
        mend();
      }
    } catch (Exception e) {
      close();
      throw e;
    }
  }

  /** Returns why there can be no such hosts here, or empty. */
  static Optional<String> missing() {
    try (TwoHosts hosts = new TwoHosts()) {
      run(hosts.inside(0, "ss", "-K", "-t", "dst", hosts.address(1)));
      return Optional.empty();
    } catch (Exception e) {
      return Optional.of("no network namespaces: " + e.getMessage());
    }
  }

  /** Returns a host's address. */
  String address(int host) {
    return NET + host + ".2";
  }

  /** Returns a command that runs on a host. */
  List<String> inside(int host, String... command) {
    List<String> words = new ArrayList<>(List.of("ip", "netns", "exec", hosts[host]));
    words.addAll(List.of(command));
    return words;
  }

  /** Returns a command that runs between the hosts, at the interfaces to0 and to1. */
  List<String> between(String... command) {
    List<String> words = new ArrayList<>(List.of("ip", "netns", "exec", router));
    words.addAll(List.of(command));
    return words;
  }

  /** Drops all packets between the hosts, without a word to either. */
  void cut() throws Exception {
    forward(0);
  }

  /** Lets packets through again. */
  void mend() throws Exception {
    forward(1);
  }

  private void forward(int on) throws Exception {
    run(between("sh", "-c", "echo " + on + " > /proc/sys/net/ipv4/ip_forward"));
  }

  /** Resets a host's connections with the other one, as a router does that has lost its state. */
  void reset(int host) throws Exception {
    run(inside(host, "ss", "-K", "-t", "dst", address(1 - host)));
  }

  private static void ip(String words) throws Exception {
    List<String> command = new ArrayList<>(List.of("ip"));
    command.addAll(List.of(words.split(" ")));
    run(command);
  }

  private static void run(List<String> command) throws IOException, InterruptedException {
    Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
    String said = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    if (process.waitFor() != 0) {
      throw new IOException(String.join(" ", command) + ": " + said.strip());
    }
  }

  @Override
  public void close() {
    for (String each : List.of(hosts[0], hosts[1], router)) {
      try {
        ip("netns delete " + each);
      } catch (Exception e) {
        continue; // it was not made
      }
    }
  }
}

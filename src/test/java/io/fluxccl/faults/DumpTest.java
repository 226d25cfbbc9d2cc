// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.faults;

import static org.assertj.core.api.Assertions.assertThat;
import static org.awaitility.Awaitility.await;

import io.fluxccl.bootstrap.JobSecret;
import io.fluxccl.cli.Cli;
import io.fluxccl.cli.Main;
import io.fluxccl.testing.Ports;
import io.fluxccl.testing.Rounds;
import io.fluxccl.testing.TestJvms;
import io.fluxccl.testkit.ProcessRank;
import io.fluxccl.testkit.ProcessRanks;
import io.fluxccl.transport.Transport;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicReference;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.junit.jupiter.api.AutoClose;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** {@code fluxccl dump} of real processes that hang: it names the rank and the call. */
@Tag("multiprocess")
@Timeout(180)
class DumpTest {
  private static final int RANKS = 3;
  private static final Duration SECOND = Duration.ofSeconds(1);
  private static final Duration PATIENCE = Duration.ofSeconds(30);

  private final JobSecret secret = JobSecret.random();
  private String address;
  @AutoClose private ProcessRanks ranks;

  private void start(Transport transport, Map<String, String> variables, boolean onHosts)
      throws Exception {
    address = "127.0.0.1:" + Ports.reserved();
    ranks =
        TestJvms.withLog(RANKS, AllReduceLoopRank.class, "4096")
            .failure("failed")
            .variables(
                Map.of(
                    AllReduceLoopRank.TRANSPORT,
                    transport.name(),
                    "FLUXCCL_ADDR",
                    address,
                    "FLUXCCL_DEVICE",
                    "host",
                    "FLUXCCL_SECRET",
                    secret.text()))
            .variables(variables)
            .variablesByRank(rank -> onHosts ? Map.of("FLUXCCL_HOSTID", "host" + rank) : Map.of())
            .start();
    ranks.all().forEach(rank -> rank.awaitLine("joined"));
  }

  private String pid(int rank) {
    return Long.toString(ranks.get(rank).pid());
  }

  /** Asks until an answer matches that took less than a second. */
  private Matcher verdict(String target, String pattern) {
    Pattern expected = Pattern.compile(pattern);
    AtomicReference<Matcher> matcher = new AtomicReference<>();
    await(pattern)
        .atMost(PATIENCE)
        .until(
            () -> {
              long began = System.nanoTime();
              String out = dump(target);
              Duration took = Duration.ofNanos(System.nanoTime() - began);
              matcher.set(expected.matcher(out));
              return took.compareTo(SECOND) < 0 && matcher.get().find();
            });
    return matcher.get();
  }

  /** Asks at each target, and returns the call that all answers name. */
  private String awaitVerdict(String pattern, String... targets) {
    List<String> calls =
        Stream.of(targets).map(target -> verdict(target, pattern).group(1)).distinct().toList();
    assertThat(calls).hasSize(1);
    return calls.get(0);
  }

  /**
   * Returns a pattern of the line in which a dump reports that two ranks wait for a third. The
   * third may have stopped after it had sent its part of a call to only one of them. This one then
   * waits in the next call, and the dump names the first call and the rank in it.
   */
  static String waiting(int one, int other) {
    return "(?:ranks %d and %d wait|rank (?:%d|%d) waits)".formatted(one, other, one, other);
  }

  /** Returns the pattern of an answer within 500 ms that names a stopped rank and its call. */
  private static String silent(int rank, int one, int other) {
    return "rank %d does not answer, and in all-reduce (\\d+) of lane 0 ".formatted(rank)
        + waiting(one, other)
        + " for \\d+[\\s\\S]* within [1-4]\\d\\d ms";
  }

  private String dump(String target, String... options) {
    List<String> args = new ArrayList<>(List.of("dump", target));
    args.addAll(List.of(options));
    Cli cli = Cli.run(Map.of("FLUXCCL_SECRET", secret.text()), args.toArray(String[]::new));
    assertThat(cli.err()).isEmpty();
    return cli.out();
  }

  static List<Transport> transports() {
    return Rounds.LONG ? List.of(Transport.SHM, Transport.ETHERNET) : List.of(Transport.SHM);
  }

  @ParameterizedTest
  @MethodSource("transports")
  void shouldNameTheRankAndTheCall(Transport transport) throws Exception {
    start(transport, Map.of(), false);
    String healthy = "all ranks answer, and none waits in a collective for over 100 ms";
    assertThat(verdict(pid(0), "3 ranks, of which (\\d) answer\n" + healthy).group(1))
        .isEqualTo("3");

    // Stops a rank that neither watches the others nor gets the request. The others receive no
    // heartbeats from it, so no rank waits for its answer until the limit of 500 ms.
    ranks.get(2).stop();
    awaitVerdict(silent(2, 0, 1), pid(0), pid(2), address);
    verdict(pid(1), "rank 2 does not answer: .*; no heartbeat for \\d");
    ranks.get(2).resume();
    verdict(pid(0), healthy);

    // The rank that watches the others.
    ranks.get(0).stop();
    awaitVerdict(silent(0, 1, 2), pid(1), pid(0), address);
    ranks.get(0).resume();
    verdict(address, healthy);

    // A rank that has forgotten one.
    ranks.get(1).sendLine("forget");
    String forgotten = ranks.get(1).awaitLine("forgot").split(" ")[1];
    String missing =
        "rank 1 has not begun all-reduce (\\d+) of lane 0, in which ranks 0 and 2 wait for \\d+";
    assertThat(awaitVerdict(missing, pid(0), address)).isEqualTo(forgotten);

    String json = dump(pid(2), "--json", "--limit", "20000").replaceAll("\\s", "");
    assertThat(json).contains("\"blamed\":[1]");
    assertThat(json).contains("\"waiting\":[0,2],\"not_begun\":[1]");
    assertThat(json).contains("\"call\":\"all-reduce" + forgotten + "\"");
  }

  @Test
  @Tag("long")
  void shouldAskRanksOfSeveralHostsOverTlsWithTheirVariables() throws Exception {
    start(Transport.ETHERNET, Map.of("FLUXCCL_TLS", "1", "FLUXCCL_TIMEOUT", "120"), true);
    String own = secret.text();
    awaitDump(Map.of("FLUXCCL_TLS", "1", "FLUXCCL_SECRET", own), "3 ranks, of which 3 answer");
    awaitDump(Map.of("FLUXCCL_TLS", "1"), "FLUXCCL_SECRET");
    awaitDump(
        Map.of("FLUXCCL_TLS", "0", "FLUXCCL_SECRET", own), "no rank answers; are FLUXCCL_TLS");
  }

  private void awaitDump(Map<String, String> variables, String pattern) {
    awaitDump(List.of(), variables, address, pattern);
  }

  /** Requests dumps, by processes with this prefix and these variables, until one matches. */
  static void awaitDump(
      List<String> prefix, Map<String, String> variables, String target, String pattern) {
    ProcessRanks.Builder dump =
        // On a machine that does much else, ranks need long for their part of TLS.
        TestJvms.withLog(1, Main.class, "dump", "--limit", "4000", target)
            .prefix(prefix)
            .removeVariables(TestJvms::isOfJob)
            .variables(variables);
    await(pattern)
        .untilAsserted(
            () -> {
              try (ProcessRank process = dump.startRank(0)) {
                process.end();
                assertThat(process.output()).containsPattern(pattern);
              }
            });
  }
}

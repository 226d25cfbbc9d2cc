// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.faults;

import static org.assertj.core.api.Assertions.assertThat;
import static org.awaitility.Awaitility.await;

import io.fluxccl.bootstrap.JobSecret;
import io.fluxccl.cli.Cli;
import io.fluxccl.testing.Ports;
import io.fluxccl.testing.Rounds;
import io.fluxccl.transport.Transport;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.AfterEach;
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
  private final List<FaultRankProcess> ranks = new ArrayList<>();

  @AfterEach
  void end() throws Exception {
    for (FaultRankProcess rank : ranks) {
      rank.close();
    }
  }

  private void start(Transport transport, Map<String, String> more) throws Exception {
    address = "127.0.0.1:" + Ports.reserved();
    for (int rank = 0; rank < RANKS; rank++) {
      Map<String, String> variables = new HashMap<>(more);
      variables.put("FLUXCCL_RANK", "" + rank);
      variables.put("FLUXCCL_NRANKS", "" + RANKS);
      variables.put("FLUXCCL_ADDR", address);
      variables.put("FLUXCCL_DEVICE", "host");
      variables.put("FLUXCCL_SECRET", secret.text());
      variables.computeIfPresent("FLUXCCL_HOSTID", (name, set) -> more.get(name) + ranks.size());
      ranks.add(new FaultRankProcess(SkippingRank.class, List.of(), variables, transport.name()));
    }
    ranks.forEach(rank -> rank.awaitLine("joined"));
  }

  private String pid(int rank) {
    return Long.toString(ranks.get(rank).process().pid());
  }

  /** Asks until an answer matches that took less than a second. */
  private Matcher verdict(String target, String pattern) {
    Pattern expected = Pattern.compile(pattern);
    List<String> said = new ArrayList<>();
    await(pattern)
        .atMost(PATIENCE)
        .until(
            () -> {
              long began = System.nanoTime();
              String out = dump(target);
              Duration took = Duration.ofNanos(System.nanoTime() - began);
              said.add(out);
              return took.compareTo(SECOND) < 0 && expected.matcher(out).find();
            });
    Matcher matcher = expected.matcher(said.get(said.size() - 1));
    assertThat(matcher.find()).isTrue();
    return matcher;
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
    start(transport, Map.of());
    String healthy = "all ranks answer, and none waits in a collective for over 100 ms";
    assertThat(verdict(pid(0), "3 ranks, of which (\\d) answer\n" + healthy).group(1))
        .isEqualTo("3");

    // Stops a rank that neither hosts the root nor gets the request. The others receive no
    // heartbeats from it, so no rank waits for its answer until the limit of 500 ms.
    ranks.get(2).process().stop();
    String stopped =
        "rank 2 does not answer, and in all-reduce (\\d+) of lane 0 "
            + DumpProcess.waiting(0, 1)
            + " for \\d+[\\s\\S]* within [1-4]\\d\\d ms";
    String call = verdict(pid(0), stopped).group(1);
    assertThat(verdict(pid(2), stopped).group(1)).isEqualTo(call);
    assertThat(verdict(address, stopped).group(1)).isEqualTo(call);
    verdict(pid(1), "rank 2 does not answer: .*; no heartbeat for \\d");
    ranks.get(2).process().resume();
    verdict(pid(0), healthy);

    // The rank that hosts the root.
    ranks.get(0).process().stop();
    String root =
        "rank 0 does not answer, and in all-reduce (\\d+) of lane 0 "
            + DumpProcess.waiting(1, 2)
            + " for \\d+[\\s\\S]* within [1-4]\\d\\d ms";
    call = verdict(pid(1), root).group(1);
    assertThat(verdict(pid(0), root).group(1)).isEqualTo(call);
    assertThat(verdict(address, root).group(1)).isEqualTo(call);
    ranks.get(0).process().resume();
    verdict(address, healthy);

    // A rank that has forgotten one.
    ranks.get(1).process().sendLine("forget");
    ranks.get(1).awaitLine("forgot");
    String forgotten = ranks.get(1).last("forgot").split(" ")[1];
    String missing =
        "rank 1 has not begun all-reduce (\\d+) of lane 0, in which ranks 0 and 2 wait for \\d+";
    assertThat(verdict(pid(0), missing).group(1)).isEqualTo(forgotten);
    assertThat(verdict(address, missing).group(1)).isEqualTo(forgotten);

    String json = dump(pid(2), "--json", "--limit", "20000").replaceAll("\\s", "");
    assertThat(json).contains("\"blamed\":[1]");
    assertThat(json).contains("\"waiting\":[0,2],\"not_begun\":[1]");
    assertThat(json).contains("\"call\":\"all-reduce" + forgotten + "\"");
  }

  @Test
  @Tag("long")
  void shouldAskRanksOfSeveralHostsOverTls() throws Exception {
    Map<String, String> tls = Map.of("FLUXCCL_TLS", "1");
    start(
        Transport.ETHERNET,
        Map.of("FLUXCCL_TLS", "1", "FLUXCCL_HOSTID", "host", "FLUXCCL_TIMEOUT", "120"));
    Map<String, String> own = Map.of("FLUXCCL_TLS", "1", "FLUXCCL_SECRET", secret.text());
    DumpProcess asker = new DumpProcess(List.of(), own);
    asker.verdict(address, "3 ranks, of which 3 answer");
    ranks.get(2).process().stop();
    String stopped =
        "rank 2 does not answer, and in all-reduce \\d+ of lane 0 " + DumpProcess.waiting(0, 1);
    asker.verdict(address, stopped);
    asker.verdict(pid(1), stopped);
    ranks.get(2).process().resume();
    new DumpProcess(List.of(), tls).verdict(address, "FLUXCCL_SECRET");
    new DumpProcess(List.of(), Map.of("FLUXCCL_TLS", "0", "FLUXCCL_SECRET", secret.text()))
        .verdict(address, "no rank answers; are FLUXCCL_TLS");
  }
}

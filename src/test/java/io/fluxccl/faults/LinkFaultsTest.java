package io.fluxccl.faults;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.fluxccl.bootstrap.JobSecret;
import io.fluxccl.testing.Rounds;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** A job of three ranks on two hosts goes on while the link between them fails. */
@Tag("faults")
@Timeout(900)
class LinkFaultsTest {
  private static final int RANKS = 3;
  private static final int PORT = 29_617;

  /** The ports of the data: two ranks are on one host. */
  private static final int FIRST = 29_618;

  private static final int LAST = 29_619;
  private static final int LIMIT_SECONDS = 90;

  private static TwoHosts hosts;
  private static String missing;

  private final List<RankProcess> ranks = new ArrayList<>();

  @BeforeAll
  static void connect() throws Exception {
    Optional<String> reason = TwoHosts.missing();
    missing = reason.orElse("");
    hosts = reason.isEmpty() ? new TwoHosts() : null;
  }

  @AfterAll
  static void disconnect() {
    if (hosts != null) {
      hosts.close();
    }
  }

  @BeforeEach
  void requireHosts() {
    assumeTrue(missing.isEmpty(), missing);
  }

  private void start() throws Exception {
    start(LIMIT_SECONDS, Map.of());
  }

  private void start(int limitSeconds, Map<String, String> more) throws Exception {
    Map<String, String> variables = new HashMap<>(more);
    variables.put("FLUXCCL_NRANKS", Integer.toString(RANKS));
    variables.put("FLUXCCL_ADDR", hosts.address(0) + ":" + PORT);
    variables.put("FLUXCCL_SECRET", JobSecret.random().text());
    variables.put("FLUXCCL_PORT_RANGE", FIRST + "-" + LAST);
    variables.put("FLUXCCL_TIMEOUT", Integer.toString(limitSeconds));
    for (int rank = 0; rank < RANKS; rank++) {
      int host = rank == RANKS - 1 ? 1 : 0;
      variables.put("FLUXCCL_RANK", Integer.toString(rank));
      variables.put("FLUXCCL_HOSTID", "host" + host);
      ranks.add(new RankProcess(SteadyRank.class, hosts.inside(host), variables));
    }
    awaitMoreSteps();
  }

  @AfterEach
  void end() throws Exception {
    for (RankProcess rank : ranks) {
      rank.close();
    }
    if (hosts != null) {
      hosts.mend();
    }
  }

  /** Waits until every rank has made steps that began after now. */
  private void awaitMoreSteps() {
    long most = ranks.stream().mapToLong(RankProcess::steps).max().orElse(0);
    ranks.forEach(rank -> rank.awaitStep(most + 3));
    assertThat(ranks).noneMatch(rank -> rank.last("wrong") != null);
  }

  @ParameterizedTest
  @ValueSource(ints = {2, 30, 60})
  void shouldGoOnWhenTheLinkWasDown(int seconds) throws Exception {
    start();
    hosts.cut();
    Thread.sleep(seconds * 1000L);
    hosts.mend();
    awaitMoreSteps();
  }

  @Test
  void shouldGoOnThroughManyPartitions() throws Exception {
    start();
    Random random = new Random(1);
    for (int round = 0; round < 20; round++) {
      hosts.cut();
      Thread.sleep(100 + random.nextInt(3000));
      hosts.mend();
      awaitMoreSteps();
    }
  }

  /** Those of the data and of the bootstrap. */
  @ParameterizedTest
  @ValueSource(strings = {"0", "1"})
  void shouldGoOnWhenConnectionsAreReset(String tls) throws Exception {
    start(LIMIT_SECONDS, Map.of("FLUXCCL_TLS", tls));
    Random random = new Random(2);
    for (int round = 0; round < 50; round++) {
      Thread.sleep(random.nextInt(Rounds.of(200, 500)));
      hosts.reset(round % 2);
      awaitMoreSteps();
    }
    // Each end says so, unless the other one was first.
    assertThat(count("the link is lost and is replaced")).isGreaterThanOrEqualTo(50);
    assertThat(count("of the bootstrap was reset")).isGreaterThanOrEqualTo(50);
  }

  private long count(String line) {
    return ranks.stream().mapToLong(rank -> rank.count(line)).sum();
  }

  @Test
  void shouldNameTheRankThatIsKilledWhileItsLinkIsDown() throws Exception {
    int limitSeconds = 20;
    start(limitSeconds, Map.of());
    long cut = System.nanoTime();
    hosts.cut();
    hosts.reset(0);
    ranks.get(0).awaitLineWith("is replaced");
    ranks.get(RANKS - 1).kill();
    hosts.mend();
    for (RankProcess survivor : ranks.subList(0, RANKS - 1)) {
      survivor.awaitLine("failed ");
      assertThat(survivor.last("failed ")).contains("rank=" + (RANKS - 1));
    }
    assertWithin(limitSeconds, cut);
  }

  @Test
  void shouldEndWithinTheLimitWhenTheLinkStaysDown() throws Exception {
    int limitSeconds = 10;
    start(limitSeconds, Map.of());
    long cut = System.nanoTime();
    hosts.cut();
    for (RankProcess rank : ranks) {
      rank.awaitLine("failed ");
      // An end that only receives can't tell its link from a peer that has nothing to send.
      assertThat(rank.last("failed ")).containsPattern("link|answers no heartbeat");
    }
    assertWithin(limitSeconds, cut);
    assertThat(ranks.get(0).last("failed ")).contains("rank=" + (RANKS - 1));
  }

  private static void assertWithin(int limitSeconds, long sinceNanos) {
    assertThat(Duration.ofNanos(System.nanoTime() - sinceNanos))
        .isLessThan(Duration.ofSeconds(limitSeconds + 5));
  }
}

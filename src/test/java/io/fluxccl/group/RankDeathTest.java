// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.group;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.bootstrap.JobSecret;
import io.fluxccl.testing.Rounds;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.ServerSocket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/** Real processes, really killed. {@code -Dfluxccl.kill.rounds=50} for the long version. */
@Tag("multiprocess")
class RankDeathTest {
  private static final int RANKS = 3;

  /** Four ranks, two on each of two hosts. */
  private static final String TWO_HOSTS = "hosts";

  /** Four ranks, which go on without those that die. */
  private static final String SHRINK = "shrink";

  private static final int ROUNDS = Integer.getInteger("fluxccl.kill.rounds", Rounds.of(1, 6));

  private static final Pattern FAILED = Pattern.compile("failed (\\w+) rank=(-?\\d+) at=(-?\\d+)");
  private static final Pattern SHRUNK =
      Pattern.compile("shrunk sum=(\\d+) rank=(\\d+) at=(-?\\d+)");
  private static final Duration PATIENCE = Duration.ofSeconds(60);

  /** Of all processes that a test started: what they leave behind bears it. */
  private final List<Long> pids = new ArrayList<>();

  /** A rank's process and what it printed. */
  private static final class Rank {
    final Process process;
    final List<String> lines = new ArrayList<>();
    final CompletableFuture<Void> running = new CompletableFuture<>();
    final CompletableFuture<Matcher> failed = new CompletableFuture<>();
    final CompletableFuture<Matcher> shrunk = new CompletableFuture<>();
    final CompletableFuture<Void> closed = new CompletableFuture<>();

    Rank(Process process) {
      this.process = process;
      Thread reader = new Thread(this::read, "rank-output");
      reader.setDaemon(true);
      reader.start();
    }

    private void read() {
      try (BufferedReader in =
          new BufferedReader(
              new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8))) {
        for (String line = in.readLine(); line != null; line = in.readLine()) {
          synchronized (lines) {
            lines.add(line);
          }
          Matcher matcher = FAILED.matcher(line);
          if (line.equals("running")) {
            running.complete(null);
          } else if (line.equals("closed")) {
            closed.complete(null);
          } else if (matcher.find()) {
            failed.complete(matcher);
          } else if (line.startsWith("shrunk")) {
            Matcher result = SHRUNK.matcher(line);
            result.find();
            shrunk.complete(result);
          }
        }
      } catch (IOException e) {
        running.completeExceptionally(e);
      }
      IllegalStateException ended = new IllegalStateException("ended; it printed " + output());
      running.completeExceptionally(ended);
      failed.completeExceptionally(ended);
      shrunk.completeExceptionally(ended);
      closed.completeExceptionally(ended);
    }

    String output() {
      synchronized (lines) {
        return String.join("\n", lines);
      }
    }
  }

  private List<Rank> start(long timeoutMillis, String transport) throws IOException {
    int port;
    try (ServerSocket probe = new ServerSocket(0)) {
      port = probe.getLocalPort();
    }
    String secret = JobSecret.random().text();
    List<Rank> ranks = new ArrayList<>();
    int nRanks = ranksFor(transport);
    for (int rank = 0; rank < nRanks; rank++) {
      List<String> command = new ArrayList<>();
      command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
      command.addAll(
          Arrays.stream(System.getProperty("fluxccl.jvm.args", "").trim().split("\\s+"))
              .filter(arg -> !arg.isEmpty())
              .collect(Collectors.toList()));
      command.addAll(List.of("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"));
      command.addAll(
          List.of("-cp", System.getProperty("java.class.path"), LongRun.class.getName()));
      command.addAll(List.of(Long.toString(timeoutMillis), transport));
      ProcessBuilder builder = new ProcessBuilder(command).redirectErrorStream(true);
      builder.environment().put("FLUXCCL_RANK", Integer.toString(rank));
      builder.environment().put("FLUXCCL_NRANKS", Integer.toString(nRanks));
      if (transport.equals(TWO_HOSTS)) {
        builder.environment().put("FLUXCCL_HOSTID", "host" + rank / 2);
      }
      if (transport.equals("NET")) {
        // FluxCCL's own over TCP, whatever plugins this machine has.
        builder.environment().put("NCCL_NET_PLUGIN", "none");
        builder.environment().put("NCCL_NET", "fluxccl");
      }
      builder.environment().put("FLUXCCL_ADDR", "127.0.0.1:" + port);
      builder.environment().put("FLUXCCL_SECRET", secret);
      ranks.add(new Rank(builder.start()));
      pids.add(ranks.get(rank).process.pid());
    }
    return ranks;
  }

  private static int ranksFor(String transport) {
    return transport.equals(TWO_HOSTS) || transport.equals(SHRINK) ? 4 : RANKS;
  }

  private static <T> T await(CompletableFuture<T> future) throws Exception {
    return future.get(PATIENCE.toSeconds(), TimeUnit.SECONDS);
  }

  /** Transports of one host in the long run; in the loop the one that is chosen, and two hosts. */
  static List<String> transports() {
    return Rounds.LONG || Integer.getInteger("fluxccl.kill.rounds") != null
        ? List.of("auto", "ETHERNET", "NET", TWO_HOSTS)
        : List.of("auto", TWO_HOSTS);
  }

  @ParameterizedTest
  @MethodSource("transports")
  void shouldEndEveryOtherRankWithinASecondWhenOneIsKilled(String transport) throws Exception {
    for (int round = 0; round < ROUNDS; round++) {
      int nRanks = ranksFor(transport);
      int victim = round % nRanks;
      List<Rank> ranks = start(30_000, transport);
      try {
        for (Rank rank : ranks) {
          await(rank.running);
        }
        long killed = System.nanoTime();
        ranks.get(victim).process.destroyForcibly();
        for (int rank = 0; rank < nRanks; rank++) {
          if (rank != victim) {
            Matcher failed = await(ranks.get(rank).failed);
            String about = "round " + round + " rank " + rank + ":\n" + ranks.get(rank).output();
            assertThat(failed.group(1)).as(about).isEqualTo("REMOTE_FAILURE");
            assertThat(failed.group(2)).as(about).isEqualTo(Integer.toString(victim));
            long millis = TimeUnit.NANOSECONDS.toMillis(Long.parseLong(failed.group(3)) - killed);
            assertThat(millis).as(about).isLessThan(1000);
            await(ranks.get(rank).closed);
            assertThat(ranks.get(rank).process.waitFor(60, TimeUnit.SECONDS)).as(about).isTrue();
            assertThat(ranks.get(rank).process.exitValue()).as(about).isZero();
          }
        }
      } finally {
        destroy(ranks);
      }
    }
    assertThat(segmentsLeft()).isEmpty();
  }

  static List<Arguments> deathsInSetUp() {
    return Rounds.LONG
        ? List.of(Arguments.of(1, 0), Arguments.of(0, 0), Arguments.of(2, 30))
        : List.of(Arguments.of(1, 0));
  }

  @ParameterizedTest(name = "rank {0} dies {1} ms after the ranks have met")
  @MethodSource("deathsInSetUp")
  void shouldEndTheOthersWhenOneDiesWhileTheLanesOpen(int victim, int millis) throws Exception {
    List<Rank> ranks = start(30_000, LongRun.DIES + victim + ":" + millis);
    try {
      assertThat(ranks.get(victim).process.waitFor(60, TimeUnit.SECONDS)).isTrue();
      long died = System.nanoTime();
      for (Rank rank : ranks) {
        if (rank != ranks.get(victim)) {
          Matcher failed = await(rank.failed);
          assertThat(failed.group(1)).as(rank.output()).isEqualTo("REMOTE_FAILURE");
          assertThat(failed.group(2)).as(rank.output()).isEqualTo(Integer.toString(victim));
          long late = TimeUnit.NANOSECONDS.toMillis(Long.parseLong(failed.group(3)) - died);
          assertThat(late).as(rank.output()).isLessThan(5_000);
        }
      }
    } finally {
      destroy(ranks);
    }
  }

  static List<String> killedAtOnce() {
    return Rounds.LONG ? List.of("2", "0", "0,1", "1,3", "0,1,2") : List.of("0,1");
  }

  @ParameterizedTest(name = "killed at once: ranks {0}")
  @MethodSource("killedAtOnce")
  void shouldGoOnWithoutRanksThatAreKilled(String killed) throws Exception {
    List<Integer> victims = Arrays.stream(killed.split(",")).map(Integer::valueOf).toList();
    for (int round = 0; round < ROUNDS; round++) {
      List<Rank> ranks = start(30_000, SHRINK);
      try {
        for (Rank rank : ranks) {
          await(rank.running);
        }
        long began = System.nanoTime();
        victims.forEach(victim -> ranks.get(victim).process.destroyForcibly());
        int place = 0;
        for (int rank = 0; rank < ranks.size(); rank++) {
          if (!victims.contains(rank)) {
            String about = "rank " + rank + ":\n" + ranks.get(rank).output();
            Matcher shrunk = await(ranks.get(rank).shrunk);
            int left = ranks.size() - victims.size();
            assertThat(shrunk.group(1)).as(about).isEqualTo(Integer.toString(left));
            assertThat(shrunk.group(2)).as(about).isEqualTo(Integer.toString(place++));
            long millis = TimeUnit.NANOSECONDS.toMillis(Long.parseLong(shrunk.group(3)) - began);
            // A second, and a busy machine's time to make all anew.
            assertThat(millis).as(about).isLessThan(5_000);
            await(ranks.get(rank).closed);
          }
        }
      } finally {
        destroy(ranks);
      }
    }
    assertThat(segmentsLeft()).isEmpty();
  }

  @Test
  void shouldTimeOutNamingARankThatStopsAnswering() throws Exception {
    int limit = Rounds.of(3_000, 5_000);
    for (int victim = 0; victim < Rounds.of(1, RANKS); victim++) {
      List<Rank> ranks = start(limit, "auto");
      try {
        for (Rank rank : ranks) {
          await(rank.running);
        }
        long stopped = System.nanoTime();
        signal("STOP", ranks.get(victim).process);
        for (int rank = 0; rank < RANKS; rank++) {
          if (rank != victim) {
            Matcher failed = await(ranks.get(rank).failed);
            String about = "victim " + victim + " rank " + rank + ":\n" + ranks.get(rank).output();
            assertThat(failed.group(1)).as(about).isEqualTo("TIMEOUT");
            assertThat(failed.group(2)).as(about).isEqualTo(Integer.toString(victim));
            long millis = TimeUnit.NANOSECONDS.toMillis(Long.parseLong(failed.group(3)) - stopped);
            assertThat(millis).as(about).isBetween(limit - 1_000L, limit + 5_000L);
            await(ranks.get(rank).closed);
          }
        }
      } finally {
        destroy(ranks);
      }
    }
    assertThat(segmentsLeft()).isEmpty();
  }

  private static void signal(String name, Process process) throws Exception {
    new ProcessBuilder("kill", "-" + name, Long.toString(process.pid())).start().waitFor();
  }

  private static void destroy(List<Rank> ranks) throws InterruptedException, TimeoutException {
    for (Rank rank : ranks) {
      rank.process.destroyForcibly();
      if (!rank.process.waitFor(60, TimeUnit.SECONDS)) {
        throw new TimeoutException("a rank survived SIGKILL");
      }
    }
  }

  private List<String> segmentsLeft() throws IOException {
    Path directory = Path.of("/dev/shm");
    if (!Files.isDirectory(directory)) {
      return List.of();
    }
    try (Stream<Path> files = Files.list(directory)) {
      return files
          .map(Path::toString)
          .filter(f -> pids.stream().anyMatch(pid -> f.contains("fluxccl-" + pid + "-")))
          .collect(Collectors.toList());
    }
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import static io.fluxccl.testing.FailureAssertions.assertFails;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.awaitility.Awaitility.await;

import io.fluxccl.Aborted;
import io.fluxccl.Deadline;
import io.fluxccl.InvalidUsage;
import io.fluxccl.bootstrap.Roster.Contact;
import io.fluxccl.testing.Ports;
import io.fluxccl.testing.Rounds;
import io.fluxccl.testkit.ResourceLeaks;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Cases of a job that heals that {@code GenerationsTest} does not cover. */
@Timeout(120)
class JobTest {
  private static final Duration LONG = Duration.ofSeconds(60);

  private final ResourceLeaks before = ResourceLeaks.snapshot();
  private int port;

  @BeforeEach
  void choosePort() throws IOException {
    port = Ports.reserved();
  }

  @AfterEach
  void checkForLeaks() {
    before.assertNone(LONG);
  }

  private static Job job(String address, int rank, int nRanks, int least) {
    RankEnvironment place = RankEnvironment.of(rank, nRanks).withAddress(address);
    return Job.of(place, BootstrapOptions.defaults(), least, Duration.ZERO);
  }

  private Job job(int rank, int nRanks, int least) {
    return job("127.0.0.1:" + port, rank, nRanks, least);
  }

  @Test
  void shouldRefuseToJoinAfterItsThreadHasEnded() {
    Job job = job(0, 2, 2);
    CompletableFuture<TcpBootstrap> before = job.join(LONG);
    job.close();
    assertFails(before, Aborted.class);
    for (int i = 0; i < 20; i++) {
      assertFails(job.join(LONG), Aborted.class);
      LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(50));
      job.close();
    }
  }

  @Test
  void shouldJoinIfNanosecondsOfTimesExceedALong() {
    Duration longest = Duration.ofMillis(Long.MAX_VALUE);
    RankEnvironment place = RankEnvironment.of(0, 1).withAddress("127.0.0.1:" + port);
    BootstrapOptions options = BootstrapOptions.builder().livenessTimeout(longest).build();
    try (Job job = Job.of(place, options, 1, longest)) {
      CompletableFuture<TcpBootstrap> joining = job.join(longest);
      assertThat(joining).succeedsWithin(LONG);
      joining.join().close();
    }
  }

  @Test
  void shouldFailAtOnceWithoutTheInterfaceOfItsAddress() {
    try (Job job = job("nowhere0:127.0.0.1:" + port, 0, 2, 2)) {
      assertFails(job.join(Duration.ofHours(1)), InvalidUsage.class, "nowhere0");
    }
  }

  @Test
  void shouldReportAWrongSecretBeforeTheTimeout() {
    try (Job host = job(0, 2, 2)) {
      CompletableFuture<TcpBootstrap> waiting = host.join(LONG);
      await().atMost(LONG).until(() -> !isFree());
      BootstrapOptions other = BootstrapOptions.builder().secret(JobSecret.random()).build();
      String address = "127.0.0.1:" + port;
      RankEnvironment place = RankEnvironment.of(1, 2).withAddress(address);
      try (Job stranger = Job.of(place, other, 2, Duration.ZERO)) {
        assertFails(
            stranger.join(Duration.ofSeconds(8)),
            InvalidUsage.class,
            address,
            "it refuses this rank's secret");
      }
      assertThat(waiting).isNotDone();
    }
  }

  @Test
  void shouldFormNoGenerationWithADepartingProcess() {
    List<Job> jobs = jobsOf(3);
    List<TcpBootstrap> first = joinAll(jobs);
    jobs.get(0).close(); // joined first, and listens at the address
    assertThat(first.get(0).closeAsync()).succeedsWithin(LONG);
    first.get(1).abort(Aborted.of(1, "renewed"));
    first.subList(1, 3).forEach(each -> assertThat(each.failure()).succeedsWithin(LONG));
    List<TcpBootstrap> second = joinAll(jobs.subList(1, 3));
    assertThat(second).extracting(TcpBootstrap::generation).containsExactly(2L, 2L);
    assertThat(second.get(0).previousRanks()).containsExactly(1, 2);
    assertThatThrownBy(() -> second.get(0).failure().get(400, TimeUnit.MILLISECONDS))
        .isInstanceOf(TimeoutException.class);
    Stream.of(first, second).flatMap(List::stream).forEach(TcpBootstrap::closeAsync);
    jobs.forEach(Job::close);
  }

  @Test
  void shouldForgetProcessesOfPastGenerations() {
    // With fewer ranks a generation may form before the new process joins.
    List<Job> jobs = new ArrayList<>(IntStream.range(0, 3).mapToObj(i -> job(i, 3, 3)).toList());
    List<TcpBootstrap> group = joinAll(jobs);
    for (int round = 0; round < 3; round++) {
      List<TcpBootstrap> failed = group;
      TcpRanks.kill(failed.get(2)).join();
      failed.subList(0, 2).forEach(each -> assertThat(each.failure()).succeedsWithin(LONG));
      jobs.set(2, job(2, 3, 3));
      group = joinAll(jobs);
      failed.forEach(TcpBootstrap::closeAsync);
    }
    // Only the dead process of the generation before.
    assertThat(jobs.get(0).process.dead).hasSize(1);
    group.forEach(TcpBootstrap::closeAsync);
    jobs.forEach(Job::close);
  }

  @Test
  void shouldKeepTheThreadOfOthersIfItIsKilledAgain() {
    List<Job> jobs = jobsOf(2);
    List<TcpBootstrap> group = joinAll(jobs);
    Job other = job("127.0.0.1:" + port, 0, 2, 2);
    int moreThanUsers = 6;
    for (int i = 0; i < moreThanUsers; i++) {
      CompletableFuture.runAsync(other::kill, other.sockets.loop).join();
    }
    for (int round = 0; round < 2; round++) {
      List<CompletableFuture<Void>> barriers =
          group.stream().map(each -> each.barrier(Deadline.after(LONG))).toList();
      barriers.forEach(each -> assertThat(each).succeedsWithin(LONG));
    }
    group.forEach(TcpBootstrap::closeAsync);
    jobs.forEach(Job::close);
  }

  @Test
  void shouldListTheMembersOfTheLatestGroupInItsFile() {
    InetSocketAddress address = TcpRanks.loopback(port);
    SessionKey key = SessionKey.withoutSecret("");
    JobFile.Written before = JobFile.write(address, key, List.of(contact(1)));
    JobFile.Written after = JobFile.write(address, key, List.of(contact(2)));
    await()
        .atMost(LONG)
        .until(
            () ->
                JobFile.ofJob(Set.of(address)).stream()
                    .anyMatch(each -> each.members().equals(List.of(contact(2)))));
    before.close();
    after.close();
  }

  private static Contact contact(int port) {
    return new Contact(TcpRanks.loopback(port), port, 0, 0, 0, "");
  }

  @Test
  void shouldWaitForALateConnectedMember() {
    List<Job> jobs = jobsOf(3);
    List<TcpBootstrap> first = joinAll(jobs);
    first.get(0).abort(Aborted.of(0, "renewed"));
    first.forEach(each -> assertThat(each.failure()).succeedsWithin(LONG));
    CompletableFuture<TcpBootstrap> zero = jobs.get(0).join(LONG);
    CompletableFuture<TcpBootstrap> one = jobs.get(1).join(LONG);
    assertThatThrownBy(() -> one.get(1_500, TimeUnit.MILLISECONDS))
        .isInstanceOf(TimeoutException.class);
    CompletableFuture<TcpBootstrap> two = jobs.get(2).join(LONG);
    List<TcpBootstrap> second = Stream.of(zero, one, two).map(CompletableFuture::join).toList();
    assertThat(second).extracting(TcpBootstrap::nRanks).containsExactly(3, 3, 3);
    Stream.of(first, second).flatMap(List::stream).forEach(TcpBootstrap::closeAsync);
    jobs.forEach(Job::close);
  }

  @Test
  void shouldReleaseThePortIfClosedAtAnyTime() {
    int rounds = Rounds.of(25, 100);
    for (int i = 0; i < rounds; i++) {
      int nRanks = i % 2 + 1;
      Job job = job(0, nRanks, nRanks);
      CompletableFuture<TcpBootstrap> joined = job.join(LONG);
      LockSupport.parkNanos(TimeUnit.MICROSECONDS.toNanos(2000L / rounds * i));
      job.close();
      joined.thenAccept(TcpBootstrap::closeAsync);
      await().atMost(LONG).until(this::isFree);
    }
  }

  @Test
  void shouldJoinByTheRootOfThisProcessAfterADelay() {
    BootstrapOptions options = BootstrapOptions.defaults();
    UniqueId id = TcpBootstrap.createUniqueId(options);
    try (TcpBootstrap zero = TcpBootstrap.create(0, 2, options);
        TcpBootstrap one = TcpBootstrap.create(1, 2, options)) {
      List<CompletableFuture<Void>> joins =
          Stream.of(zero, one).map(each -> each.initialize(id)).toList();
      // As on a busy machine. Rank 0 can't listen at the address, which the root has.
      zero.loop.execute(() -> LockSupport.parkNanos(TimeUnit.SECONDS.toNanos(4)));
      joins.forEach(each -> assertThat(each).succeedsWithin(LONG));
    }
  }

  /** Creates jobs whose later generations need only one rank. */
  private List<Job> jobsOf(int nRanks) {
    return IntStream.range(0, nRanks).mapToObj(rank -> job(rank, nRanks, 1)).toList();
  }

  /** Joins all jobs and returns the members of the generation in rank order. */
  private static List<TcpBootstrap> joinAll(List<Job> jobs) {
    List<CompletableFuture<TcpBootstrap>> all = jobs.stream().map(each -> each.join(LONG)).toList();
    all.forEach(each -> assertThat(each).succeedsWithin(LONG.multipliedBy(2)));
    return all.stream().map(CompletableFuture::join).toList();
  }

  private boolean isFree() {
    try (ServerSocket socket = new ServerSocket()) {
      socket.setReuseAddress(true);
      socket.bind(new java.net.InetSocketAddress(InetAddress.getLoopbackAddress(), port));
      return true;
    } catch (IOException e) {
      return false;
    }
  }
}

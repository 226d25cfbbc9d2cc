// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.TransportFailure;
import io.fluxccl.bootstrap.JoinRules.Ballot;
import io.fluxccl.bootstrap.Roster.Contact;
import io.fluxccl.bootstrap.Roster.Nonce;
import io.fluxccl.bootstrap.Roster.Term;
import io.fluxccl.concurrent.BlockingTasks;
import io.fluxccl.testing.OtherUser;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.FileTime;
import java.nio.file.attribute.PosixFilePermissions;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** The votes of a host, shared by its processes. */
@Timeout(60)
class BallotsTest {
  private static final Nonce BASE = new Nonce(0x12, 0x34);
  private static final Nonce OTHER = new Nonce(0x12, 0x35);
  private static final JoinRules RULES = new JoinRules(Duration.ofMillis(200), Duration.ZERO);

  private static final Comparator<Ballot> ACCEPTED = Comparator.comparing(Ballot::accepted);

  @TempDir private Path parent;
  private Path folder;

  @BeforeEach
  void nameFolder() {
    folder = parent.resolve("ballots");
  }

  private static Ballots of(Path folder) {
    return of(folder, 7);
  }

  private static Ballots of(Path folder, long hostHash) {
    return new Ballots(folder, hostHash, RULES);
  }

  private static Term term(int attempt) {
    return new Term(2, attempt, 0);
  }

  private static Ballot accept(int attempt) {
    Contact member =
        new Contact(
            new InetSocketAddress("127.0.0.1", 1000 + attempt), 1, 2, 3, 4, "pid 1 ".repeat(50));
    Roster roster = new Roster(term(attempt), new Nonce(attempt, 0), List.of(member), List.of(0));
    return Ballot.accept(term(attempt), roster);
  }

  private static Ballot vote(Ballots ballots, Ballot request) {
    return ballots.vote(BASE, request).join();
  }

  private List<String> files() throws IOException {
    try (Stream<Path> files = Files.list(folder)) {
      return files.map(each -> each.getFileName().toString()).sorted().toList();
    }
  }

  private static String nameOf(String number) {
    return "00000000000000120000000000000034-0000000000000007-" + number;
  }

  // ---- shared ballots ----

  @Test
  void shouldKeepTheRulesForAllProcessesOfAHost() throws IOException {
    List<Ballots> processes = IntStream.range(0, 4).mapToObj(each -> of(folder)).toList();
    List<CompletableFuture<List<Ballot>>> voters =
        IntStream.range(0, 16)
            .mapToObj(
                voter ->
                    CompletableFuture.supplyAsync(
                        () -> voteOften(processes.get(voter % 4), voter), BlockingTasks.EXECUTOR))
            .toList();
    List<Ballot> all = new ArrayList<>();
    for (CompletableFuture<List<Ballot>> each : voters) {
      List<Ballot> results = each.join();
      assertThat(results).isSortedAccordingTo(Comparator.comparing(Ballot::promised));
      all.addAll(results);
    }
    all.sort(Comparator.comparing(Ballot::promised).thenComparing(Ballot::accepted));
    assertThat(all).as("no accepted roster is lost").isSortedAccordingTo(ACCEPTED);
    assertThat(processes).allSatisfy(each -> assertThat(see(each)).isEqualTo(last(all)));
    assertThat(files()).as("no temporary file").allMatch(name -> name.startsWith(nameOf("")));
  }

  /** Votes on terms that rise, as they do when coordinators replace each other. */
  private static List<Ballot> voteOften(Ballots ballots, int voter) {
    Random random = new Random(voter);
    List<Ballot> results = new ArrayList<>(List.of(see(ballots)));
    for (int step = 0; step < 30; step++) {
      int attempt = last(results).promised().attempt() + random.nextInt(3);
      Ballot request = random.nextBoolean() ? accept(attempt) : Ballot.promise(term(attempt));
      Ballot result = vote(ballots, request);
      assertThat(result.promised()).isGreaterThanOrEqualTo(request.promised());
      results.add(result);
    }
    return results;
  }

  private static Ballot last(List<Ballot> ballots) {
    return ballots.get(ballots.size() - 1);
  }

  /** Returns the valid ballot: a vote for no term changes nothing. */
  private static Ballot see(Ballots ballots) {
    return vote(ballots, Ballot.EMPTY);
  }

  @ParameterizedTest
  @ValueSource(booleans = {true, false})
  void shouldVoteByTheRulesInTheOrderOfTheCalls(boolean shared) {
    Ballots ballots = of(shared ? folder : null);
    List<CompletableFuture<Ballot>> votes =
        Stream.of(Ballot.promise(term(3)), accept(2), accept(3), Ballot.promise(term(4)), accept(3))
            .map(each -> ballots.vote(BASE, each))
            .toList();
    assertThat(votes.stream().map(CompletableFuture::join).map(BallotsTest::terms))
        .containsExactly(
            "2.3.0 0.0.-1", "2.3.0 0.0.-1", "2.3.0 2.3.0", "2.4.0 2.3.0", "2.4.0 2.3.0");
    assertThat(votes.get(4).join().roster().address(0).getPort()).isEqualTo(1003);
    assertThat(ballots.vote(OTHER, Ballot.EMPTY).join()).isEqualTo(Ballot.EMPTY);
    assertThat(ballots.isShared()).isEqualTo(shared);
  }

  private static String terms(Ballot ballot) {
    return ballot.promised() + " " + ballot.accepted();
  }

  @Test
  void shouldWriteNothingForAVoteThatChangesNothing() throws IOException {
    Ballots ballots = of(folder);
    vote(ballots, accept(2));
    vote(ballots, accept(2));
    vote(of(folder), Ballot.promise(term(1)));
    assertThat(files()).containsExactly(nameOf("1"));
  }

  @Test
  void shouldEmptySupersededFilesAndKeepTheirNames() throws IOException {
    Ballots ballots = of(folder);
    IntStream.rangeClosed(1, 4).forEach(attempt -> vote(ballots, accept(attempt)));
    assertThat(files()).containsExactly(nameOf("1"), nameOf("2"), nameOf("3"), nameOf("4"));
    assertThat(folder.resolve(nameOf("1"))).isEmptyFile();
    assertThat(folder.resolve(nameOf("2"))).isEmptyFile();
    assertThat(folder.resolve(nameOf("3"))).isNotEmptyFile();
  }

  @Test
  void shouldReadTheLastBallotAfterACrashWhileANewOneWasWritten() throws IOException {
    vote(of(folder), accept(2));
    byte[] content = Files.readAllBytes(folder.resolve(nameOf("1")));
    Files.write(folder.resolve("6a35fe0e-1111-2222-3333-444455556666.tmp"), content);
    Files.write(folder.resolve(nameOf("2") + ".6a35fe0e.tmp"), Arrays.copyOf(content, 9));
    assertThat(terms(vote(of(folder), Ballot.promise(term(3))))).isEqualTo("2.3.0 2.2.0");
    assertThat(files()).contains(nameOf("2"));
  }

  @Test
  void shouldDeleteForgottenAndOldBallots() throws IOException {
    Ballots ballots = of(folder);
    vote(ballots, accept(1));
    ballots.vote(OTHER, accept(1)).join();
    ballots.forget(OTHER);
    assertThat(terms(vote(ballots, Ballot.promise(term(2))))).isEqualTo("2.2.0 2.1.0");
    assertThat(files()).containsExactly(nameOf("1"), nameOf("2"));
    age(nameOf("1"), Duration.ofDays(8));
    age(nameOf("2"), Duration.ofDays(6));
    of(folder);
    assertThat(files()).containsExactly(nameOf("2"));
  }

  private void age(String name, Duration age) throws IOException {
    Files.setLastModifiedTime(folder.resolve(name), FileTime.from(Instant.now().minus(age)));
  }

  @Test
  void shouldCreateTheFolderAgainIfACleanerHasDeletedIt() throws IOException {
    Ballots ballots = of(parent.resolve("runtime/ballots"));
    Files.delete(parent.resolve("runtime/ballots"));
    Files.delete(parent.resolve("runtime"));
    assertThat(terms(vote(ballots, accept(1)))).isEqualTo("2.1.0 2.1.0");
    assertThat(parent.resolve("runtime/ballots").resolve(nameOf("1"))).isNotEmptyFile();
  }

  @Test
  void shouldFailInsteadOfVotingAloneIfTheFolderCanNotBeUsedAnyMore() throws IOException {
    Ballots ballots = of(folder);
    Files.delete(folder);
    Files.createFile(folder);
    CompletableFuture<Ballot> failed = ballots.vote(BASE, accept(1));
    assertThatThrownBy(failed::join)
        .hasCauseInstanceOf(TransportFailure.class)
        .hasMessageContaining(folder.toString())
        .hasMessageContaining("free space there");
    Files.delete(folder);
    assertThat(terms(vote(ballots, accept(1)))).as("after the repair").isEqualTo("2.1.0 2.1.0");
  }

  // ---- hosts ----

  @Test
  void shouldDistinguishHostsByTheFoldersOfTheirBallots() {
    long host = of(folder).host();
    assertThat(of(folder).host()).isEqualTo(host);
    Ballots alone = of(null);
    assertThat(alone.host()).isEqualTo(alone.host());
    assertThat(List.of(of(folder, 8), of(parent.resolve("other")), alone, of(null)))
        .extracting(Ballots::host)
        .doesNotHaveDuplicates()
        .doesNotContain(host);
  }

  @ParameterizedTest
  @ValueSource(strings = {"read by others", "of another user", "in a file", "no parent"})
  void shouldVoteAloneInAFolderThatCanNotBeShared(String trouble) throws IOException {
    Path unusable = folder;
    if (trouble.equals("read by others")) {
      Files.createDirectory(folder);
      Files.setPosixFilePermissions(folder, PosixFilePermissions.fromString("rwxr-x---"));
    } else if (trouble.equals("of another user")) {
      OtherUser.give(Files.createDirectory(folder));
    } else if (trouble.equals("in a file")) {
      unusable = Files.createFile(folder).resolve("ballots");
    } else {
      unusable = folder.resolve("runtime/ballots");
    }
    Ballots ballots = of(unusable);
    assertThat(ballots.isShared()).isFalse();
    vote(ballots, accept(1));
    assertThat(terms(see(ballots))).isEqualTo("2.1.0 2.1.0");
    assertThat(see(of(unusable))).isEqualTo(Ballot.EMPTY);
  }
}

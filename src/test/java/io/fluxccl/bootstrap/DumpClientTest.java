// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import static io.fluxccl.testing.FailureAssertions.assertFails;
import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static io.fluxccl.testing.FailureAssertions.assertThrows;
import static org.assertj.core.api.Assertions.assertThat;
import static org.awaitility.Awaitility.await;

import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.TransportFailure;
import io.fluxccl.testing.OtherUser;
import io.fluxccl.testing.Ports;
import io.fluxccl.trace.JobDump;
import io.fluxccl.trace.Snapshot;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Dumps of a job, requested from outside and from inside of the job. */
@Timeout(60)
class DumpClientTest {
  private static final Duration LIMIT = Duration.ofSeconds(10);
  private static final String ARABIC_DIGITS = "\u0661\u0662";

  private final JobSecret secret = JobSecret.random();
  private final List<TcpBootstrap> ranks = new ArrayList<>();
  private String address;

  @AfterEach
  void close() {
    ranks.forEach(TcpBootstrap::closeAsync);
    ranks.forEach(TcpBootstrap::close);
  }

  private CompletableFuture<Void> join(int rank, int nRanks) {
    TcpBootstrap each =
        TcpBootstrap.create(rank, nRanks, BootstrapOptions.builder().secret(secret).build());
    ranks.add(each);
    return each.initialize(address);
  }

  private void form(int nRanks) throws IOException {
    address = "127.0.0.1:" + Ports.reserved();
    IntStream.range(0, nRanks)
        .mapToObj(rank -> join(rank, nRanks))
        .toList()
        .forEach(CompletableFuture::join);
  }

  private CompletableFuture<JobDump> ask(JobSecret with) {
    return new JobDumpClient(true, LIMIT).ofAddress(address, Optional.of(with));
  }

  private List<String> groups(int rank) {
    Snapshot answer = ask(secret).join().ranks().get(rank);
    return answer.trees("groups").stream().map(group -> group.text("group")).toList();
  }

  private static List<JobFile> entries() throws IOException {
    return JobFile.all("self", process -> process == ProcessHandle.current().pid());
  }

  /** Forms a job, and returns the file that it leaves for this process. */
  private JobFile fileOf(int nRanks) throws IOException {
    form(nRanks);
    await().until(() -> own().size() == 1);
    return own().get(0);
  }

  /** Returns how the names of files of this process begin. */
  private static String prefix() throws IOException {
    return namespace() + "-" + ProcessHandle.current().pid();
  }

  private static String namespace() throws IOException {
    return Files.readSymbolicLink(Path.of("/proc/self/ns/pid")).toString().replaceAll("\\D", "");
  }

  private List<JobFile> own() throws IOException {
    return entries().stream()
        .filter(each -> each.root().equals(ranks.get(0).job.jobAddress()))
        .toList();
  }

  @Test
  void shouldAskEveryRankByTheAddressAndTheSecret() throws Exception {
    form(3);
    Runnable end = ranks.get(1).report(() -> Snapshot.EMPTY.with("group", "first"));
    assertThat(ask(secret).join().silent()).isEmpty();
    assertThat(groups(1)).containsExactly("first");
    end.run();
    assertThat(groups(1)).isEmpty();
    assertThat(ranks.get(2).dump(true, LIMIT).join().silent()).isEmpty();
    assertThat(ranks).noneMatch(rank -> rank.failure().isDone());
  }

  @Test
  void shouldNotReportPeersSilentAfterItsOwnDelay() throws Exception {
    form(2);
    Duration little = Duration.ofMillis(200);
    ranks.get(1).close();
    SharedEventLoop thread = SharedEventLoop.acquire();
    CompletableFuture<JobDump> asked = ranks.get(0).dump(false, little);
    // Delays the thread as long as class loading may.
    thread.loop().submit(() -> LockSupport.parkNanos(3 * little.toNanos())).get();
    thread.leave();
    assertThat(asked.join().silent()).containsExactly(1);
  }

  @Test
  void shouldTimeOutIfTheBootstrapThreadDoesNotAnswer() throws Exception {
    form(1);
    ranks.get(0).close();
    await().until(ranks.get(0).loop::isTerminated);
    assertFails(
        ranks.get(0).dump(true, Duration.ofMillis(1)),
        io.fluxccl.Timeout.class,
        "rank 0",
        "the bootstrap's thread has not answered");
  }

  @Test
  void shouldRefuseADumpIfTheSecretDiffers() throws Exception {
    form(2);
    assertFails(ask(JobSecret.random()), InvalidUsage.class, Handshake.SECRETS_DIFFER);
    assertThat(ranks).noneMatch(rank -> rank.failure().isDone());
  }

  @Test
  void shouldNameMissingRanksDuringSetup() throws Exception {
    address = "127.0.0.1:" + Ports.reserved();
    join(0, 3);
    join(2, 3);
    String message = "is being set up; missing ranks: [1]";
    await().untilAsserted(() -> assertFails(ask(secret), FluxCclException.class, message));
  }

  @Test
  void shouldAskRanksAfterTheirJobHasFailed() throws Exception {
    form(2);
    ranks.get(0).abort(io.fluxccl.Aborted.of(0, "as the test wants"));
    ranks.get(1).failure().join();
    assertThat(ranks.get(1).dump(true, LIMIT).join().silent()).isEmpty();
  }

  @Test
  void shouldReportADepartedRank() throws Exception {
    form(3);
    ranks.get(2).close();
    JobDump dump = ranks.get(1).dump(true, LIMIT).join();
    assertThat(dump.silent()).containsExactly(2);
    assertThat(dump.ranks().get(2).text("problem")).contains("it has left or died");
  }

  @Test
  void shouldLeaveOneFileForAProcessThatOnlyThisUserCanRead() throws Exception {
    assertThat(fileOf(3).members()).hasSize(3);
    Path folder = JobFile.folder("self");
    assertThat(PosixFilePermissions.toString(Files.getPosixFilePermissions(folder)))
        .isEqualTo("rwx------");
    long process = ProcessHandle.current().pid();
    List<JobDump> dumps =
        new JobDumpClient(false, LIMIT)
            .ofProcess(process).stream().map(CompletableFuture::join).toList();
    assertThat(dumps).anyMatch(dump -> dump.nRanks() == 3 && dump.silent().isEmpty());
    close();
    await().until(() -> own().isEmpty());
  }

  private boolean isKeptByADump(Path file) throws Exception {
    entries();
    return Files.exists(file);
  }

  @Test
  void shouldDeleteFilesOfProcessesThatHaveDied() throws Exception {
    Process dead = new ProcessBuilder("true").start();
    dead.waitFor();
    byte[] content = fileOf(1).encode();
    Path folder = JobFile.folder("self");
    String number = namespace();
    Path stale = Files.write(folder.resolve(number + "-" + dead.pid() + "-1-1"), content);
    // Of a container that shares the folder: its process may be alive in another namespace.
    Path foreign = Files.write(folder.resolve("1" + number + "-" + dead.pid() + "-1-1"), content);
    Path odd = Files.write(folder.resolve(number + "-" + ARABIC_DIGITS + "-1-1"), content);
    // Another process that forms a job now may delete it.
    await().until(() -> isKeptByADump(Files.write(stale, content)));
    Files.write(stale, content);
    form(1);
    await().untilAsserted(() -> assertThat(stale).doesNotExist());
    assertThat(List.of(foreign, odd)).allMatch(Files::exists);
    Files.delete(odd);
    Files.delete(foreign);
    assertRefused(() -> new JobDumpClient(false, LIMIT).ofProcess(dead.pid()));
  }

  /** A reader that trusts these files hangs, runs out of memory or shows another job. */
  @Test
  void shouldIgnoreInvalidJobFiles() throws Exception {
    JobFile one = fileOf(2);
    Path folder = JobFile.folder("self");
    String prefix = prefix();
    List<Path> placed = new ArrayList<>();
    try {
      placed.add(Files.createDirectory(folder.resolve(prefix + "-2-1")));
      placed.add(OtherUser.makeFifo(folder.resolve(prefix + "-2-2")));
      Path huge = Files.createFile(folder.resolve(prefix + "-2-3"));
      placed.add(huge);
      try (RandomAccessFile sparse = new RandomAccessFile(huge.toFile(), "rw")) {
        sparse.setLength(1L << 40);
      }
      placed.add(Files.createSymbolicLink(folder.resolve(prefix + "-2-4"), huge));
      Path entry = folder.resolve(prefix + "-" + ranks.get(0).job.jobAddress().getPort());
      placed.add(Files.createSymbolicLink(folder.resolve(prefix + "-2-5"), entry));
      for (String odd :
          List.of(prefix.split("-")[0] + "-", prefix, prefix + "-2", prefix + "-x-1")) {
        placed.add(Files.write(folder.resolve(odd), one.encode()));
      }
      // Its content names another process than its file name.
      JobFile lie = new JobFile(1, one.root(), one.key(), one.members());
      placed.add(Files.write(folder.resolve(prefix + "-2-6"), lie.encode()));
      assertThat(own()).hasSize(1);
    } finally {
      for (Path each : placed) {
        Files.delete(each);
      }
    }
  }

  @Test
  void shouldIgnoreAJobFileOfAnotherUser() throws Exception {
    byte[] content = fileOf(1).encode();
    Path foreign = Files.write(JobFile.folder("self").resolve(prefix() + "-2-7"), content);
    try {
      OtherUser.give(foreign);
      assertThat(own()).hasSize(1);
    } finally {
      Files.delete(foreign);
    }
  }

  @Test
  void shouldRefuseMalformedFiles() throws Exception {
    byte[] whole = fileOf(2).encode();
    for (int length = 0; length < whole.length; length++) {
      byte[] cut = Arrays.copyOf(whole, length);
      assertThrows(TransportFailure.class, () -> JobFile.decode(cut));
    }
  }

  @Test
  void shouldDeriveADumpKeyThatCannotJoin() throws Exception {
    SessionKey key = fileOf(2).key();
    SessionKey links = ranks.get(0).job.sockets.key;
    assertThat(Stream.of(links, links.of(BootstrapFrame.LinkKind.LINK)).map(SessionKey::key))
        .noneMatch(each -> Arrays.equals(each, key.key()));
    assertThat(links.of(BootstrapFrame.LinkKind.INQUIRY).key()).isEqualTo(key.key());
  }
}

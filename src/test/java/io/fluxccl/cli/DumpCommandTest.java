// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import static org.assertj.core.api.Assertions.assertThat;
import static org.awaitility.Awaitility.await;

import io.fluxccl.testing.OtherUser;
import io.fluxccl.testing.Ports;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Errors of {@code fluxccl dump} without a job; DumpTest tests it with jobs. */
@Tag("jdk")
@Timeout(120)
class DumpCommandTest {
  private static Cli dump(String... args) {
    List<String> all = new ArrayList<>(List.of("dump"));
    all.addAll(List.of(args));
    return Cli.run(Map.of("FLUXCCL_SECRET", "a secret of a test"), all.toArray(String[]::new));
  }

  @Test
  void shouldFailIfTheProcessDoesNotExist() throws Exception {
    Process ended = new ProcessBuilder("true").start();
    ended.waitFor();
    dump("" + ended.pid())
        .assertFails(ExitCode.USAGE, "process " + ended.pid() + " can't be looked up");
  }

  @Test
  void shouldFailIfTheProcessHasNoRank() throws Exception {
    Process other = new ProcessBuilder("sleep", "60").start();
    try {
      dump("" + other.pid())
          .assertFails(ExitCode.USAGE, "no rank of process " + other.pid() + " is known in /tmp/");
    } finally {
      other.destroyForcibly();
    }
  }

  @Test
  void shouldTrustNoFolderThatAnotherUserHasMadeForTheUserOfAProcess() throws Exception {
    OtherUser.requireRoot();
    // The folder of a user is in /tmp, where another user can make it first.
    Path folder = Path.of("/tmp", "fluxccl-" + OtherUser.ID);
    Process other = OtherUser.start("sleep", "60");
    try {
      await().until(() -> Files.getAttribute(proc(other), "unix:uid").equals(OtherUser.ID));
      OtherUser.give(Files.createDirectory(folder));
      assertThat(dump("" + other.pid()).err()).contains("others have the permissions");
      Files.setPosixFilePermissions(folder, PosixFilePermissions.fromString("rwx------"));
      assertThat(dump("" + other.pid()).err()).contains("no rank of process");
      Files.setAttribute(folder, "unix:uid", OtherUser.ID + 1);
      assertThat(dump("" + other.pid()).err())
          .contains(folder + " belongs to user " + (OtherUser.ID + 1));
      Files.delete(folder);
      OtherUser.makeFifo(folder);
      assertThat(dump("" + other.pid()).code()).isEqualTo(ExitCode.USAGE);
      Files.delete(folder);
      OtherUser.give(Files.createSymbolicLink(folder, Path.of("/tmp/fluxccl-0")));
      assertThat(dump("" + other.pid()).err()).contains("is a link of user");
    } finally {
      other.destroyForcibly();
      Files.deleteIfExists(folder);
    }
  }

  private static Path proc(Process process) {
    return Path.of("/proc", Long.toString(process.pid()));
  }

  @Test
  void shouldFailIfNothingListensAtTheAddress() throws Exception {
    String address = "127.0.0.1:" + Ports.reserved();
    dump(address)
        .assertFails(
            ExitCode.FAILURE,
            "fluxccl dump: timeout: the root gives no answer",
            "nothing listens at /" + address);
  }

  @Test
  void shouldRefuseInvalidArguments() {
    dump("job").assertFails(ExitCode.USAGE, "give ip:port");
    dump().assertFails(ExitCode.USAGE);
    dump("1", "--limit", "0").assertFails(ExitCode.USAGE, "give 1 ms or more");
  }
}

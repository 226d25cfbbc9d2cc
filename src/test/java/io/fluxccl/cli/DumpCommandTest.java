// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import static org.assertj.core.api.Assertions.assertThat;
import static org.awaitility.Awaitility.await;

import io.fluxccl.testing.OtherUser;
import io.fluxccl.testing.Ports;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.Map;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Errors of {@code fluxccl dump} without a job; DumpTest tests it with jobs. */
@Tag("jdk")
@Timeout(120)
class DumpCommandTest {
  private static Cli dump(String... args) {
    String[] all = new String[args.length + 1];
    all[0] = "dump";
    System.arraycopy(args, 0, all, 1, args.length);
    return Cli.run(Map.of("FLUXCCL_SECRET", "a secret of a test"), all);
  }

  @Test
  void shouldFailIfTheProcessDoesNotExist() throws Exception {
    Process ended = new ProcessBuilder("true").start();
    ended.waitFor();
    Cli cli = dump(Long.toString(ended.pid()));
    assertThat(cli.code()).isEqualTo(ExitCode.USAGE);
    assertThat(cli.err()).contains("process " + ended.pid() + " can't be looked up");
  }

  @Test
  void shouldFailIfTheProcessHasNoRank() throws Exception {
    Process other = new ProcessBuilder("sleep", "60").start();
    try {
      Cli cli = dump(Long.toString(other.pid()));
      assertThat(cli.code()).isEqualTo(ExitCode.USAGE);
      assertThat(cli.err()).contains("no rank of process " + other.pid() + " is known in /tmp/");
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
      assertThat(dump(Long.toString(other.pid())).err()).contains("others have the permissions");
      Files.setPosixFilePermissions(folder, PosixFilePermissions.fromString("rwx------"));
      assertThat(dump(Long.toString(other.pid())).err()).contains("no rank of process");
      Files.setAttribute(folder, "unix:uid", OtherUser.ID + 1);
      assertThat(dump(Long.toString(other.pid())).err())
          .contains(folder + " belongs to user " + (OtherUser.ID + 1));
      Files.delete(folder);
      OtherUser.makeFifo(folder);
      assertThat(dump(Long.toString(other.pid())).code()).isEqualTo(ExitCode.USAGE);
      Files.delete(folder);
      OtherUser.give(Files.createSymbolicLink(folder, Path.of("/tmp/fluxccl-0")));
      assertThat(dump(Long.toString(other.pid())).err()).contains("is a link of user");
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
    Cli cli = dump(address);
    assertThat(cli.code()).isEqualTo(ExitCode.FAILURE);
    assertThat(cli.err())
        .contains("fluxccl dump: timeout: the root gives no answer")
        .contains("nothing listens at /" + address);
  }

  @Test
  void shouldRefuseInvalidArguments() {
    assertThat(dump("job").code()).isEqualTo(ExitCode.USAGE);
    assertThat(dump("job").err()).contains("give ip:port");
    assertThat(dump().code()).isEqualTo(ExitCode.USAGE);
    assertThat(dump("1", "--limit", "0").err()).contains("give 1 ms or more");
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.testing.Ports;
import java.util.Map;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

/** What {@code fluxccl dump} says where there is no job; DumpTest has jobs. */
@Tag("jdk")
class DumpCommandTest {
  private static Cli dump(String... args) {
    String[] all = new String[args.length + 1];
    all[0] = "dump";
    System.arraycopy(args, 0, all, 1, args.length);
    return Cli.run(Map.of("FLUXCCL_SECRET", "a secret of a test"), all);
  }

  @Test
  void shouldSayThatAProcessDoesNotExist() throws Exception {
    Process ended = new ProcessBuilder("true").start();
    ended.waitFor();
    Cli cli = dump(Long.toString(ended.pid()));
    assertThat(cli.code()).isEqualTo(ExitCode.USAGE);
    assertThat(cli.err()).contains("process " + ended.pid() + " can't be looked up");
  }

  @Test
  void shouldSayThatAProcessHasNoRank() throws Exception {
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
  void shouldSayThatNothingListensAtAnAddress() throws Exception {
    String address = "127.0.0.1:" + Ports.reserved();
    Cli cli = dump(address);
    assertThat(cli.code()).isEqualTo(ExitCode.FAILURE);
    assertThat(cli.err())
        .contains("fluxccl dump: timeout: the root gives no answer")
        .contains("nothing listens at /" + address);
  }

  @Test
  void shouldRefuseWhatIsNeitherAProcessNorAnAddress() {
    assertThat(dump("job").code()).isEqualTo(ExitCode.USAGE);
    assertThat(dump("job").err()).contains("give ip:port");
    assertThat(dump().code()).isEqualTo(ExitCode.USAGE);
    assertThat(dump("1", "--limit", "0").err()).contains("give 1 ms or more");
  }
}

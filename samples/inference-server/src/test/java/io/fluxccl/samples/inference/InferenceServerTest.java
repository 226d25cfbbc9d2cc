// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference;

import static org.assertj.core.api.Assertions.assertThat;

import java.io.IOException;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import picocli.CommandLine;

/** The check that {@code run} makes before it starts ranks, which would be restarted for ever. */
class InferenceServerTest {
  private final StringWriter err = new StringWriter();

  private int check(String... args) {
    CommandLine line = InferenceServer.commandLine().setErr(new PrintWriter(err, true));
    return line.execute(args);
  }

  @Test
  void shouldAcceptRanksThatCanShareTheModel() {
    assertThat(check("--model", "model", "--port", "0", "--check-ranks", "2")).isZero();
    assertThat(err.toString()).isEmpty();
  }

  @Test
  void shouldRefuseRanksThatCannotInOneSentence() {
    assertThat(check("--model", "model", "--port", "0", "--check-ranks", "3")).isEqualTo(1);
    assertThat(err.toString().lines())
        .containsExactly(
            "inference-server: ranks=3; they must be at most heads=8 and divide vocabulary=2048, and 4"
                + " times as many intermediate=512; hidden=256 and each rank's heads * headDim=32"
                + " must be multiples of 4: possible are [1, 2, 4, 8]");
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      value = {
        "--check-ranks 0 | --ranks=0; give 1 or more",
        "--check-ranks -2 | --ranks=-2; give 1 or more",
        "--check-ranks two | Invalid value for option '--ranks': 'two' is not an int",
        "--check-ranks 1 --rows 0 | --rows=0; give 32 or more, a row for each of --sequences",
        "--check-ranks 1 --sequences 0 | --sequences=0; give 1 or more",
        "--check-ranks 1 --sequences 65 | --rows=64; give 65 or more",
        "--check-ranks 1 --pages 0 | --pages=0; give 1 or more",
        "--check-ranks 1 --pages 1000000 | at most --pages=",
        "--check-ranks 2 --pages 2000000000 | --pages=2000000000; the host device supports up to",
        "--check-ranks 1 --rows 2000000000 | --rows=2000000000; the host device supports up to",
        "--check-ranks 1 --waiting -1 | --waiting=-1; give 0 or more",
        "--check-ranks 1 --failures -1 | --failures=-1; give 0 or more",
        "--check-ranks 1 --port -1 | --port=-1; give 0 or more",
        "--check-ranks 1 --port 70000 | 70000",
        "--check-ranks 1 --speed 9 | Unknown options: '--speed', '9'"
      })
  void shouldRefuseOptionsThatCannotWorkInOneLine(String options, String message) {
    List<String> args = new ArrayList<>(List.of("--model", "model"));
    if (!options.contains("--port")) {
      args.addAll(List.of("--port", "0"));
    }
    args.addAll(List.of(options.split(" ")));
    assertThat(check(args.toArray(String[]::new))).isEqualTo(1);
    assertThat(err.toString().lines())
        .hasSize(1)
        .allMatch(line -> line.startsWith("inference-server: ") && line.contains(message));
  }

  @Test
  void shouldRefuseAModelThatIsNotThere() {
    assertThat(check("--model", "nowhere", "--check-ranks", "1")).isEqualTo(1);
    assertThat(err.toString().lines()).hasSize(1).allMatch(line -> line.contains("nowhere"));
  }

  @Test
  void shouldRefuseAModelThatLacksATensor(@TempDir Path folder) throws IOException {
    for (String file : List.of("config.json", "tokenizer.json")) {
      Files.copy(Path.of("model", file), folder.resolve(file));
    }
    // The small model's weights with another name of the last gain, of the same length.
    byte[] weights = Files.readAllBytes(Path.of("model/model.safetensors"));
    String text = new String(weights, StandardCharsets.ISO_8859_1);
    text = text.replace("\"model.norm.weight\"", "\"model.nurm.weight\"");
    Files.write(folder.resolve("model.safetensors"), text.getBytes(StandardCharsets.ISO_8859_1));
    assertThat(check("--model", folder.toString(), "--port", "0", "--check-ranks", "1"))
        .isEqualTo(1);
    assertThat(err.toString().lines())
        .hasSize(1)
        .allMatch(line -> line.contains("the tensor model.norm.weight of 1 x 256"));
  }

  @Test
  void shouldRefuseAPortThatIsTaken() throws IOException {
    try (ServerSocket taken = new ServerSocket(0, 1, InetAddress.getByName("127.0.0.1"))) {
      String port = String.valueOf(taken.getLocalPort());
      assertThat(check("--model", "model", "--port", port, "--check-ranks", "1")).isEqualTo(1);
      assertThat(err.toString().lines()).hasSize(1).allMatch(line -> line.contains("in use"));
    }
  }
}

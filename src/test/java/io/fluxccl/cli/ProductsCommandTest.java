// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.matmul.OverlapTable;
import io.fluxccl.matmul.OverlapTable.Operation;
import io.fluxccl.matmul.OverlapTable.Rule;
import io.fluxccl.matmul.OverlapTable.Way;
import io.fluxccl.testing.EmulatedGpus;
import io.fluxccl.testing.RequiresGpus;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

@Timeout(300)
class ProductsCommandTest {
  private static final Rule OF_OTHERS =
      new Rule(Operation.ALL_GATHER_MATMUL, 4, 16, 24, 8, Way.PIECES);

  @TempDir private Path folder;

  private String[] command(String... more) {
    String[] common = {
      "perf", "products", "--inputs", "16", "--outputs", "24", "--tune", file().toString()
    };
    return Stream.of(common, more).flatMap(Stream::of).toArray(String[]::new);
  }

  private Path file() {
    return folder.resolve("overlap.txt");
  }

  private void refuses(List<String> message, String... more) {
    Cli.run(Map.of(), command(more)).assertFails(ExitCode.USAGE, message.toArray(new String[0]));
  }

  @Test
  void shouldRefuseWrongOptionsBeforeRanksStart() throws IOException {
    refuses(List.of("give --ranks N"));
    String front = "perf --device host products --inputs 1 --outputs 1 --tune " + file();
    Cli.run(Map.of(), front.split(" ")).assertFails(ExitCode.USAGE, "put --device after products");
    refuses(List.of("ranks=1", "give 2 or more"), "--ranks", "1");
    refuses(List.of("type=FLOAT32", "BFLOAT16"), "--ranks", "2", "-d", "float");
    refuses(List.of("maxRows=0"), "--ranks", "2", "--rows", "0");
    Files.writeString(file(), "fluxccl-tuning=2");
    refuses(List.of("overlap.txt, line 1", "begin the table with"), "--ranks", "2");
  }

  @Test
  void shouldRefuseToTuneOnTheHostDevice() {
    String[] command = command("--ranks", "2", "--device", "host", "--rows", "4");
    Cli.run(Cli.process(Main.class, command))
        .assertFails(ExitCode.USAGE, "2 ranks with rows=[4] on host", "give each rank a GPU");
    assertThat(file()).doesNotExist();
  }

  @Test
  @RequiresGpus(2)
  @EmulatedGpus
  void shouldReplaceTheRulesOfItsShapeOnly() throws IOException {
    OverlapTable others = OverlapTable.DEFAULT.with(List.of(OF_OTHERS));
    Files.writeString(file(), others.toText());
    String[] command = command("--ranks", "2", "--device", "cuda", "--rows", "4,8");
    for (int run = 0; run < 2; run++) { // the second replaces the rules of the first
      Cli tuned = Cli.run(Cli.process(Main.class, command));
      assertThat(tuned.code()).as(tuned.err()).isZero();
      List<Rule> written = OverlapTable.read(file()).rules();
      assertThat(written).hasSize(7).contains(OF_OTHERS);
      assertThat(tuned.out())
          .isEqualToIgnoringNewLines(others.with(written).toText().replace(line(), ""));
    }
  }

  private static String line() {
    return "all-gather-matmul 4 16 24 8 pieces\n";
  }
}

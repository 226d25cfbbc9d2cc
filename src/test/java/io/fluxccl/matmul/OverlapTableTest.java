// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.matmul;

import static io.fluxccl.matmul.OverlapTable.Operation.ALL_GATHER_MATMUL;
import static io.fluxccl.matmul.OverlapTable.Operation.MATMUL_REDUCE_SCATTER;
import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.catchThrowable;

import io.fluxccl.DataType;
import io.fluxccl.matmul.OverlapTable.Rule;
import io.fluxccl.matmul.OverlapTable.Way;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Rules and plans for products that overlap with communication. */
class OverlapTableTest {
  private static final ProductShape SHAPE = new ProductShape(64, 128, DataType.BFLOAT16, 8192);
  private static final Rule SMALL = new Rule(MATMUL_REDUCE_SCATTER, 4, 64, 128, 4096, Way.SERIAL);
  private static final Rule LARGE = new Rule(MATMUL_REDUCE_SCATTER, 4, 64, 128, 8192, Way.PIECES);

  private static Way way(OverlapTable table, int ranks, int rows) {
    return table.way(MATMUL_REDUCE_SCATTER, ranks, SHAPE, rows);
  }

  @Test
  void shouldTakeTheRuleWithTheFewestRowsThatFits() {
    OverlapTable table = OverlapTable.DEFAULT.with(List.of(LARGE, SMALL));
    assertThat(way(table, 4, 4096)).isEqualTo(Way.SERIAL);
    assertThat(way(table, 4, 4097)).isEqualTo(Way.PIECES);
    assertThat(way(table, 2, 4096)).isEqualTo(Way.SERIAL);
  }

  @Test
  void shouldOverlapLargeProductsWithoutARule() {
    ProductShape large = new ProductShape(7168, 8192, DataType.BFLOAT16, 8192);
    OverlapTable table = OverlapTable.DEFAULT;
    assertThat(table.way(MATMUL_REDUCE_SCATTER, 4, large, 1024)).isEqualTo(Way.PIECES);
    assertThat(table.way(ALL_GATHER_MATMUL, 4, large, 1020)).isEqualTo(Way.SERIAL);
    assertThat(table.way(ALL_GATHER_MATMUL, 2, SHAPE, 8192)).isEqualTo(Way.SERIAL);
  }

  @Test
  void shouldUseOnePlanUpToEachPowerOfTwoOfRows() {
    assertThat(IntStream.of(1, 2, 3, 4, 5, 8, 9, 1025, 2048).map(CudaOverlap::planOf))
        .containsExactly(0, 1, 2, 2, 3, 3, 4, 11, 11);
  }

  @Test
  void shouldReadTheTextOfATable(@TempDir Path folder) throws Exception {
    Rule other = new Rule(ALL_GATHER_MATMUL, 2, 64, 128, 1, Way.PIECES);
    OverlapTable table = OverlapTable.DEFAULT.with(List.of(LARGE, SMALL, other));
    Path file = Files.writeString(folder.resolve("table"), "\n" + table.toText() + "# end\n");
    OverlapTable read = OverlapTable.read(file);
    assertThat(read.rules()).containsExactly(other, SMALL, LARGE);
    assertThat(read.toText()).isEqualTo(table.toText());
    assertThat(read.with(List.of(SMALL)).rules()).containsExactly(other, SMALL);
  }

  @Test
  void shouldNameFileLineAndRemedyIfATableIsWrong(@TempDir Path folder) throws Exception {
    String first = "fluxccl-overlap=1\n";
    assertRefused(() -> OverlapTable.parse("", "t"), "t, line 1", "begin", "'fluxccl-overlap=1'");
    assertRefused(() -> OverlapTable.parse("\nx\n", "t"), "t, line 2: 'x'", "'fluxccl-overlap=1'");
    Map<String, String> problems =
        Map.of(
            "all-reduce 1", "give operation ranks",
            "no-operation 4 1 1 1 serial",
                "operation=no-operation is none of matmul-reduce-scatter",
            "all-gather-matmul x 1 1 1 serial", "\"x\"",
            "all-gather-matmul 4 1 -1 1 serial", "outputs=-1, upToRows=1; give 1 or more",
            "all-gather-matmul 4 1 1 0 serial", "upToRows=0; give 1 or more",
            "all-gather-matmul 4 1 1 1 soon", "way=soon is none of serial, pieces");
    for (Map.Entry<String, String> problem : problems.entrySet()) {
      String text = first + "# note\n\n" + problem.getKey() + "\n";
      Path file = Files.writeString(folder.resolve("table"), text);
      assertRefused(
          () -> OverlapTable.read(file),
          file + ", line 4: '" + problem.getKey() + "'",
          problem.getValue(),
          "up-to-rows");
    }
    assertRefused(() -> OverlapTable.read(folder.resolve("none")), "none", "can't be read", "give");
  }

  @Test
  void shouldReadFilesOfEditorsThatWriteAByteOrderMarkAndCarriageReturns() {
    String text = OverlapTable.DEFAULT.with(List.of(SMALL, LARGE)).toText();
    OverlapTable read = OverlapTable.parse("\ufeff" + text.replace("\n", "\r\n"), "t");
    assertThat(read.rules()).containsExactly(SMALL, LARGE);
  }

  @Test
  void shouldRefuseRulesThatAreForEqualCalls() {
    Rule other = new Rule(MATMUL_REDUCE_SCATTER, 4, 64, 128, 8192, Way.SERIAL);
    String text = OverlapTable.DEFAULT.with(List.of(SMALL, LARGE)).toText();
    String both = text + "matmul-reduce-scatter 4 64 128 8192 serial";
    assertRefused(
        () -> OverlapTable.parse(both, "t"),
        "table t: 'matmul-reduce-scatter 4 64 128 8192 serial'",
        "give one");
    assertRefused(
        () -> OverlapTable.DEFAULT.with(List.of(LARGE, other)),
        "newer rules: 'matmul-reduce-scatter 4 64 128 8192 serial'");
    assertRefused(() -> OverlapTable.DEFAULT.with(null), "newer=null");
  }

  @Test
  void shouldRefuseAFileThatIsFarTooLargeForATable(@TempDir Path folder) throws Exception {
    Path file = folder.resolve("large");
    try (FileChannel large =
        FileChannel.open(file, StandardOpenOption.CREATE, StandardOpenOption.WRITE)) {
      large.write(ByteBuffer.wrap(new byte[1]), 3L << 30); // has no other blocks on the disk
    }
    assertRefused(() -> OverlapTable.read(file), file + " has more than 1048576 bytes", "give");
    String line = "x".repeat(10_000);
    Throwable refused = catchThrowable(() -> OverlapTable.parse(line, "t"));
    assertThat(refused.getMessage()).hasSizeLessThan(400);
  }
}

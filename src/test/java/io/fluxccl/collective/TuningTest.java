// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static io.fluxccl.DataType.FLOAT32;
import static io.fluxccl.DataType.INT32;
import static io.fluxccl.DataType.INT8;
import static io.fluxccl.testing.OnRanks.Runner.lane;
import static io.fluxccl.testing.Outcomes.completes;
import static io.fluxccl.testing.Outcomes.fails;
import static io.fluxccl.testing.Outcomes.refuses;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.DataType;
import io.fluxccl.InvalidUsage;
import io.fluxccl.ReduceOp;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceKind;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.testing.Bytes;
import io.fluxccl.testing.FakeFamily;
import io.fluxccl.testing.OnRanks;
import io.fluxccl.testkit.LocalRank;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;

@OnRanks
@Timeout(60)
class TuningTest {
  private static final String HEADER = "fluxccl-tuning=2\n";
  private static final int SHARE = 1 << 20;
  private static final Tuning.Rule RULE =
      new Tuning.Rule(
          Collective.ALL_TO_ALL_V, DeviceKind.CUDA, 8, 2, true, Tuning.TypeClass.FP8, 0, "far");

  @TempDir private Path folder;

  @Test
  void shouldParseItsOwnText() {
    Tuning written = Tuning.NONE.with(List.of(RULE));

    Tuning read = Tuning.parse(written.toText(), "text");

    assertThat(read.rules()).containsExactly(RULE);
    assertThat(read.fingerprint())
        .isEqualTo(written.fingerprint())
        .isNotEqualTo(Tuning.NONE.fingerprint());
  }

  @Test
  void shouldReadFilesOfEditorsThatWriteAByteOrderMark() {
    String text = "fluxccl-tuning=2\r\nnote=by an editor\r\n";
    assertThat(Tuning.parse("\ufeff" + text, "t").toText())
        .isEqualTo(Tuning.parse(text, "t").toText());
  }

  @Test
  void shouldIgnoreCommentsAndBlankLines() {
    Tuning tuning =
        Tuning.parse(
            "# mine\n\n" + HEADER + "  barrier.host.2.1.unregistered.integer: 0 fast", "f");

    assertThat(tuning.rules()).extracting(Tuning.Rule::algorithm).containsExactly("fast");
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      value = {
        "all-reduce.host.2.1.registered=8 a                  | the name of a rule is"
            + " collective.device",
        "all-reduce.host.2.1.registered.half.b=8 a           | the name of a rule is"
            + " collective.device",
        "all-reduce.host.2.1.registered.half=8               | '8' is not of the form up-to-bytes",
        "all-reduce.host.2.1.registered.half=8 a b           | '8 a b' is not of the form"
            + " up-to-bytes",
        "all-reduce.host.2.1.registered.half=8 a,            | '' is not of the form up-to-bytes",
        "all-deduce.host.2.1.registered.half=8 a             | collective=all-deduce is none of",
        "all-reduce.abacus.2.1.registered.half=8 a           | device=abacus is none of host, cuda",
        "all-reduce.host.0.1.registered.half=8 a             | ranks=0 is out of range",
        "all-reduce.host.two.1.registered.half=8 a           | ranks=two is no number",
        "all-reduce.host.2.-1.registered.half=8 a            | hosts=-1 is out of range",
        "all-reduce.host.2.1.yes.half=8 a                    | buffers=yes is none of",
        "all-reduce.host.2.1.registered.whole=8 a            | types=whole is none of half",
        "all-reduce.host.2.1.registered.half=-8 a            | up-to-bytes=-8 is out of range",
        "all-reduce.host.2.1.registered.half=99999999999999999999 a | is no number",
      })
  void shouldRefuseAWrongRuleWithItsName(String line, String message) {
    assertThatThrownBy(() -> Tuning.parse(HEADER + "\n" + line, "some/file"))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageStartingWith("tuning=some/file " + line.substring(0, line.indexOf('=')) + ": ")
        .hasMessageContaining(message);
  }

  @Test
  void shouldRefuseOtherVersionsAndOtherFiles() throws Exception {
    assertThatThrownBy(() -> Tuning.parse("fluxccl-tuning=3\n", "f"))
        .isInstanceOf(InvalidUsage.class)
        .hasMessage("tuning=f is no tuning file: it has no line 'fluxccl-tuning=2'");
    assertThatThrownBy(() -> Tuning.parse("# nothing\n", "f"))
        .hasMessageContaining("is no tuning file");
    refuses(() -> Tuning.parse(HEADER + "\\uxyz", "f"), "has wrong lines");
    refuses(() -> Tuning.read(folder.resolve("missing")), "can't be read");
    Path binary = Files.write(folder.resolve("binary"), new byte[] {(byte) 0xff, 0, 1});
    refuses(() -> Tuning.read(binary));
  }

  @Test
  void shouldExplainHowToReplaceAFileOfVersion1() {
    String old =
        """
        # measured in May
        fluxccl-tuning 1
        # collective device ranks hosts buffers types up-to-bytes algorithm
        barrier host 2 1 unregistered integer 0 fast
        """;

    assertThatThrownBy(() -> Tuning.parse(old, "f"))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageStartingWith("tuning=f has the format of version 1; give 'fluxccl perf --tune'");
  }

  @Test
  void shouldRefuseDuplicateRules() {
    String line = "barrier.host.2.1.unregistered.integer=0 fast\n";

    refuses(
        () -> Tuning.parse(HEADER + line + line, "f"),
        "barrier.host.2.1.unregistered.integer is there twice");
  }

  @Test
  void shouldKeepTheNotesOfTheRulesThatStay() {
    String before =
        """
        # A comment, which goes.
        fluxccl-tuning=2
        note=of the cluster in the cellar\\nmeasured in Maiß
        barrier.host.2.1.unregistered.integer=0 fast
        barrier.host.2.1.unregistered.integer.note=by hand: 100% sure
        all-reduce.host.2.1.registered.half=64 small, 128 large
        all-reduce.host.2.1.registered.half.note=measured in June
        """;
    Tuning.Rule newer =
        new Tuning.Rule(
            Collective.ALL_REDUCE, DeviceKind.HOST, 2, 1, true, Tuning.TypeClass.HALF, 256, "all");

    String after = Tuning.parse(before, "f").with(List.of(newer)).toText();

    assertThat(after.lines())
        .containsExactly(
            "fluxccl-tuning=2",
            "# collective.device.ranks.hosts.buffers.types="
                + "up-to-bytes algorithm, up-to-bytes algorithm, ...",
            "all-reduce.host.2.1.registered.half=256 all",
            "barrier.host.2.1.unregistered.integer.note=by hand\\: 100% sure",
            "barrier.host.2.1.unregistered.integer=0 fast",
            "note=of the cluster in the cellar\\nmeasured in Maiß");
    assertThat(Tuning.parse(after, "f").toText()).isEqualTo(after);
  }

  @Test
  void shouldIgnoreNotesInTheFingerprint() {
    Tuning noted = Tuning.parse(HEADER + "note=nothing yet\n", "f").with(List.of(RULE));

    assertThat(noted.toText()).contains("note=nothing yet");
    assertThat(noted.fingerprint()).isEqualTo(Tuning.NONE.with(List.of(RULE)).fingerprint());
  }

  private CollectivesOptions tuned(String... rules) throws Exception {
    Path file = Files.createTempFile(folder, "tuning", "");
    Files.writeString(file, HEADER + String.join("\n", rules) + "\n");
    return CollectivesOptions.DEFAULT.withTuning(file).withFamily(new Two());
  }

  @Test
  void shouldTakeTheAlgorithmOfTheFirstRuleThatFits(LocalRank rank) throws Exception {
    CollectivesOptions options =
        tuned(
            "all-reduce.host.3.1.unregistered.float=999999 two-b",
            "all-reduce.host.2.1.unregistered.float=64 two-b, 1024 two-a",
            "all-reduce.host.2.1.registered.float=1024 two-b");
    DeviceBuffer x = rank.device().allocate(8192);
    Collectives collectives = lane(rank, options);
    assertThat(algorithm(collectives, x, 16, FLOAT32)).isEqualTo("two-b");
    assertThat(algorithm(collectives, x, 17, FLOAT32)).isEqualTo("two-a");
    assertThat(algorithm(collectives, x, 1024, FLOAT32)).isEqualTo("two-a");
    assertThat(algorithm(collectives, x, 4, INT32)).isEqualTo("two-a");
    collectives.prefer(Collective.ALL_REDUCE, Optional.of("two-b"));
    assertThat(algorithm(collectives, x, 4, INT32)).isEqualTo("two-b");
    collectives.prefer(Collective.ALL_REDUCE, Optional.empty());
    collectives.register(x).join();
    assertThat(algorithm(collectives, x, 17, FLOAT32)).isEqualTo("two-b");
  }

  private static String algorithm(Collectives in, DeviceBuffer x, long count, DataType type) {
    return in.algorithmFor(CollectiveCall.allReduce(x, x, count, type, ReduceOp.SUM));
  }

  /** A call of one rank, with buffers that all ranks have registered and one unregistered. */
  private interface Calls {
    CollectiveCall of(int rank, DeviceBuffer input, DeviceBuffer output, DeviceBuffer unknown);
  }

  /** Calls in which not all ranks use a registered buffer. */
  private enum Mixed {
    RANK_THAT_SENDS_NOTHING(
        Collective.ALL_TO_ALL_V,
        (rank, input, output, unknown) ->
            CollectiveCall.allToAllv(
                rank == 0 ? null : input,
                rank == 0 ? new long[3] : new long[] {SHARE, SHARE, SHARE},
                output,
                new long[] {0, SHARE, SHARE},
                INT8)),
    RANK_THAT_RECEIVES_NOTHING(
        Collective.ALL_TO_ALL_V,
        (rank, input, output, unknown) ->
            CollectiveCall.allToAllv(
                input,
                new long[] {0, SHARE, SHARE},
                rank == 0 ? null : output,
                rank == 0 ? new long[3] : new long[] {SHARE, SHARE, SHARE},
                INT8)),
    ROOT_WHOSE_SHARE_IS_PART_OF_ITS_LARGE_BUFFER(
        Collective.GATHER,
        (rank, input, output, unknown) ->
            CollectiveCall.gather(
                rank == 1 ? unknown.slice(SHARE, SHARE) : input,
                rank == 1 ? unknown : null,
                SHARE,
                INT8,
                1));

    private final Collective which;
    private final Calls calls;

    Mixed(Collective which, Calls calls) {
      this.which = which;
      this.calls = calls;
    }
  }

  @ParameterizedTest
  @EnumSource
  @OnRanks(3)
  void shouldChooseOneAlgorithmOnAllRanks(Mixed mixed, LocalRank rank) throws Exception {
    String job = mixed.which.label() + ".host.3.1.";
    CollectivesOptions options =
        tuned(
            job + "registered.integer=999999999 host-direct",
            job + "unregistered.integer=999999999 host-staged");
    byte[] content = new byte[3 * SHARE];
    Arrays.fill(content, (byte) (1 + rank.rank()));
    DeviceBuffer input = rank.device().allocate(3 * SHARE);
    DeviceBuffer output = rank.device().allocate(3 * SHARE);
    DeviceBuffer unknown = rank.device().allocate(3 * SHARE);
    input.upload(0, content);
    unknown.upload(0, content);
    Collectives collectives = lane(rank, options);
    collectives.register(input).join();
    collectives.register(output).join();
    CollectiveCall call = mixed.calls.of(rank.rank(), input, output, unknown);
    assertThat(collectives.algorithmFor(call)).isEqualTo("host-staged");
    completes(collectives.run(call));
    for (int peer = 0; peer < 3; peer++) {
      int bytes = (int) call.receiveBytes(rank.rank(), peer);
      if (bytes > 0) {
        assertThat(Bytes.of(call.output(), call.receiveOffset(peer), bytes)).containsOnly(1 + peer);
      }
    }
  }

  private static void shouldFail(LocalRank rank, CollectivesOptions options, String... messages) {
    fails(Collectives.create(rank.communicator(), options), InvalidUsage.class, messages);
  }

  @Test
  void shouldRefuseARuleForThisJobIfItsAlgorithmDoesNotExist(LocalRank rank) throws Exception {
    CollectivesOptions options =
        tuned(
            "all-reduce.cuda.2.1.registered.float=64 unknown-elsewhere",
            "all-reduce.host.2.1.registered.float=64 unknown-here");
    shouldFail(
        rank,
        options,
        " all-reduce.host.2.1.registered.float: algorithm=unknown-here for all-reduce is none of ");
  }

  @Test
  @OnRanks(3)
  void shouldRefuseDifferentFilesOnAllRanks(LocalRank rank) throws Exception {
    int most = rank.rank() == 2 ? 65 : 64;
    CollectivesOptions options = tuned("all-reduce.host.3.1.registered.float=" + most + " two-a");
    shouldFail(rank, options, "tuning=", "; give all ranks the same");
  }

  @Test
  void shouldRefuseOnAllRanksWhenOneCannotReadItsFile(LocalRank rank) throws Exception {
    CollectivesOptions one = tuned("all-reduce.host.3.1.registered.float=64 two-a");
    CollectivesOptions other = one.withTuning(folder.resolve("missing"));
    shouldFail(rank, rank.rank() == 0 ? other : one, "tuning=");
  }

  @Test
  @OnRanks(3)
  void shouldRefuseDifferentFamiliesOnAllRanks(LocalRank rank) {
    CollectivesOptions plain = CollectivesOptions.DEFAULT;
    CollectivesOptions options = rank.rank() == 1 ? plain.withFamily(new Two()) : plain;
    shouldFail(rank, options, "families=", "two");
  }

  /** Two algorithms for every call, which are preferred to all others. */
  private static final class Two extends FakeFamily {
    Two() {
      super("two");
    }

    @Override
    public List<CollectiveAlgorithm> algorithms() {
      return List.of(new Named("two-a", -2), new Named("two-b", -1));
    }
  }

  private record Named(String name, double micros) implements CollectiveAlgorithm {
    @Override
    public boolean supports(BoundCall call) {
      return true;
    }

    @Override
    public double estimate(BoundCall call) {
      return micros;
    }

    @Override
    public void enqueue(DeviceStream stream, BoundCall call) {
      throw new UnsupportedOperationException("only chosen, never called");
    }
  }
}

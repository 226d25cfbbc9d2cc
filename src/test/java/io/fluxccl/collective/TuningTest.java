// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.DataType;
import io.fluxccl.InvalidUsage;
import io.fluxccl.ReduceOp;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceKind;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.host.HostMemory;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.LocalRanks;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

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
    assertThatThrownBy(() -> Tuning.parse(HEADER + "\\uxyz", "f"))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContaining("has wrong lines");
    assertThatThrownBy(() -> Tuning.read(folder.resolve("missing")))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContaining("can't be read");
    Path binary = Files.write(folder.resolve("binary"), new byte[] {(byte) 0xff, 0, 1});
    assertThatThrownBy(() -> Tuning.read(binary)).isInstanceOf(InvalidUsage.class);
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

    assertThatThrownBy(() -> Tuning.parse(HEADER + line + line, "f"))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContaining("barrier.host.2.1.unregistered.integer is there twice");
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
  void shouldTakeTheAlgorithmOfTheFirstRuleThatFits() throws Exception {
    CollectivesOptions options =
        tuned(
            "all-reduce.host.3.1.unregistered.float=999999 two-b",
            "all-reduce.host.2.1.unregistered.float=64 two-b, 1024 two-a",
            "all-reduce.host.2.1.registered.float=1024 two-b");
    try (LocalRanks ranks = LocalRanks.of(2)) {
      ranks.run(
          rank -> {
            DeviceBuffer x = rank.device().allocate(8192);
            try (Collectives collectives =
                Collectives.create(rank.communicator(), options).join()) {
              assertThat(algorithm(collectives, x, 16, DataType.FLOAT32)).isEqualTo("two-b");
              assertThat(algorithm(collectives, x, 17, DataType.FLOAT32)).isEqualTo("two-a");
              // Without a rule, the algorithm with the least estimate.
              assertThat(algorithm(collectives, x, 1024, DataType.FLOAT32)).isEqualTo("two-a");
              assertThat(algorithm(collectives, x, 4, DataType.INT32)).isEqualTo("two-a");
              collectives.prefer(Collective.ALL_REDUCE, Optional.of("two-b"));
              assertThat(algorithm(collectives, x, 4, DataType.INT32)).isEqualTo("two-b");
              collectives.prefer(Collective.ALL_REDUCE, Optional.empty());
              try (Registration known = collectives.register(x).join()) {
                assertThat(algorithm(collectives, x, 17, DataType.FLOAT32)).isEqualTo("two-b");
              }
            } finally {
              x.close();
            }
          });
    }
  }

  private static String algorithm(Collectives in, DeviceBuffer x, long count, DataType type) {
    return in.algorithmFor(CollectiveCall.allReduce(x, x, count, type, ReduceOp.SUM));
  }

  /** A call of one rank, with buffers that all ranks have registered and one unregistered. */
  private interface Calls {
    CollectiveCall of(int rank, DeviceBuffer input, DeviceBuffer output, DeviceBuffer unknown);
  }

  private void shouldDoAlikeOnAllRanks(Collective which, Calls calls) throws Exception {
    String job = which.label() + ".host.3.1.";
    Path file = Files.createTempFile(folder, "tuning", "");
    Files.writeString(
        file,
        HEADER
            + (job + "registered.integer=999999999 host-direct\n")
            + (job + "unregistered.integer=999999999 host-staged\n"));
    try (LocalRanks ranks = LocalRanks.of(3)) {
      ranks.run(
          rank -> {
            DeviceBuffer input = rank.device().allocate(3 * SHARE);
            DeviceBuffer output = rank.device().allocate(3 * SHARE);
            DeviceBuffer unknown = rank.device().allocate(3 * SHARE);
            HostMemory.fill(input.address(), input.size(), (byte) (1 + rank.rank()));
            HostMemory.fill(unknown.address(), unknown.size(), (byte) (1 + rank.rank()));
            try (Collectives collectives =
                Collectives.create(rank.communicator(), CollectivesOptions.DEFAULT.withTuning(file))
                    .join()) {
              collectives.register(input).join();
              collectives.register(output).join();
              CollectiveCall call = calls.of(rank.rank(), input, output, unknown);
              assertThat(collectives.algorithmFor(call)).isEqualTo("host-staged");
              collectives.run(call).block();
              for (int peer = 0; peer < 3; peer++) {
                long length = call.receiveBytes(rank.rank(), peer);
                byte[] got = new byte[(int) length];
                if (length > 0) {
                  call.output().download(call.receiveOffset(peer), got);
                }
                byte[] expected = new byte[(int) length];
                Arrays.fill(expected, (byte) (1 + peer));
                assertThat(got).isEqualTo(expected);
              }
              rank.awaitAll();
            }
          });
    }
  }

  @Test
  void shouldChooseOneAlgorithmIfARankSendsNothing() throws Exception {
    shouldDoAlikeOnAllRanks(
        Collective.ALL_TO_ALL_V,
        (rank, input, output, unknown) ->
            rank == 0
                ? CollectiveCall.allToAllv(
                    null, new long[3], output, new long[] {0, SHARE, SHARE}, DataType.INT8)
                : CollectiveCall.allToAllv(
                    input, shares(SHARE), output, new long[] {0, SHARE, SHARE}, DataType.INT8));
  }

  @Test
  void shouldChooseOneAlgorithmIfARankReceivesNothing() throws Exception {
    shouldDoAlikeOnAllRanks(
        Collective.ALL_TO_ALL_V,
        (rank, input, output, unknown) ->
            rank == 0
                ? CollectiveCall.allToAllv(
                    input, new long[] {0, SHARE, SHARE}, null, new long[3], DataType.INT8)
                : CollectiveCall.allToAllv(
                    input, new long[] {0, SHARE, SHARE}, output, shares(SHARE), DataType.INT8));
  }

  private static long[] shares(long each) {
    return new long[] {each, each, each};
  }

  @Test
  void shouldChooseOneAlgorithmIfTheRootsShareIsPartOfItsLargeBuffer() throws Exception {
    shouldDoAlikeOnAllRanks(
        Collective.GATHER,
        (rank, input, output, unknown) ->
            CollectiveCall.gather(
                rank == 1 ? unknown.slice(SHARE, SHARE) : input,
                rank == 1 ? unknown : null,
                SHARE,
                DataType.INT8,
                1));
  }

  @Test
  void shouldRefuseARuleForThisJobIfItsAlgorithmDoesNotExist() throws Exception {
    CollectivesOptions options =
        tuned(
            "all-reduce.cuda.2.1.registered.float=64 unknown-elsewhere",
            "all-reduce.host.2.1.registered.float=64 unknown-here");
    shouldFail(
        rank -> options,
        " all-reduce.host.2.1.registered.float: algorithm=unknown-here for all-reduce is none of ");
  }

  @Test
  void shouldRefuseDifferentFilesOnAllRanks() throws Exception {
    CollectivesOptions one = tuned("all-reduce.host.3.1.registered.float=64 two-a");
    CollectivesOptions other = tuned("all-reduce.host.3.1.registered.float=65 two-a");
    shouldFail(rank -> rank.rank() == 2 ? other : one, "tuning=", "; give all ranks the same");
  }

  @Test
  void shouldRefuseOnAllRanksWhenOneCannotReadItsFile() throws Exception {
    CollectivesOptions one = tuned("all-reduce.host.3.1.registered.float=64 two-a");
    CollectivesOptions other = one.withTuning(folder.resolve("missing"));
    shouldFail(rank -> rank.rank() == 0 ? other : one, "tuning=");
  }

  @Test
  void shouldRefuseDifferentFamiliesOnAllRanks() {
    shouldFail(
        rank ->
            rank.rank() == 1
                ? CollectivesOptions.DEFAULT.withFamily(new Two())
                : CollectivesOptions.DEFAULT,
        "families=",
        "two");
  }

  private interface OptionsOfRank {
    CollectivesOptions of(LocalRank rank);
  }

  private static void shouldFail(OptionsOfRank options, String... messages) {
    try (LocalRanks ranks = LocalRanks.of(messages.length == 1 ? 2 : 3)) {
      ranks.run(
          rank -> {
            Communicator communicator = rank.communicator();
            assertThatThrownBy(() -> Collectives.create(communicator, options.of(rank)).join())
                .isInstanceOf(CompletionException.class)
                .cause()
                .isInstanceOf(InvalidUsage.class)
                .hasMessageContainingAll(messages);
          });
    }
  }

  /** A family with two algorithms for all calls, the first of which has the least estimate. */
  private static final class Two implements AlgorithmFamily {
    @Override
    public String name() {
      return "two";
    }

    @Override
    public List<String> description() {
      return List.of();
    }

    @Override
    public boolean supports(RankTopology topology) {
      return true;
    }

    @Override
    public CompletableFuture<AlgorithmSet> prepare(PeerConnections peers) {
      return CompletableFuture.completedFuture(
          new AlgorithmSet() {
            @Override
            public List<CollectiveAlgorithm> algorithms() {
              return List.of(new Named("two-a", -2), new Named("two-b", -1));
            }

            @Override
            public void close() {}
          });
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

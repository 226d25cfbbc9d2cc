// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.cli.LineForwarder.Sink.End;
import java.io.OutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Queue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.IntFunction;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(60)
class RankOutputTest {
  private final Queue<String> writes = new ConcurrentLinkedQueue<>();
  private final AtomicInteger writers = new AtomicInteger();
  private final AtomicInteger mostWriters = new AtomicInteger();

  private final OutputStream file =
      new OutputStream() {
        @Override
        public void write(int b) {
          write(new byte[] {(byte) b}, 0, 1);
        }

        @Override
        public void write(byte[] bytes, int offset, int length) {
          mostWriters.accumulateAndGet(writers.incrementAndGet(), Math::max);
          Thread.yield();
          writes.add(new String(bytes, offset, length, StandardCharsets.UTF_8));
          writers.decrementAndGet();
        }
      };

  // As stdout and stderr are when both go to one file.
  private final PrintStream out = new PrintStream(file);
  private final PrintStream err = new PrintStream(file);

  private static byte[] bytes(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }

  @Test
  void shouldWriteEachLineAtOnceAndOneAtATime() {
    LineForwarder.Sink sink = RankOutput.ofAllRanks(out, err, true, 4);

    IntFunction<Runnable> lines =
        rank ->
            () ->
                IntStream.range(0, 200)
                    .forEach(i -> sink.line(rank, rank % 2 == 1, bytes("line " + i), End.LINE));
    CompletableFuture.allOf(
            IntStream.range(0, 4)
                .mapToObj(rank -> CompletableFuture.runAsync(lines.apply(rank)))
                .toArray(CompletableFuture[]::new))
        .join();
    sink.notice("rank 3 ended");

    assertThat(writes).hasSize(801).last().isEqualTo("rank 3 ended\n");
    assertThat(writes.stream().limit(800))
        .allSatisfy(line -> assertThat(line).matches("\\[[0-3]] line \\d+\\n"));
    assertThat(mostWriters).hasValue(1);
  }

  private String written() {
    return String.join("", writes);
  }

  @Test
  void shouldGiveALoneRanksBytesAsTheyAre() {
    LineForwarder.Sink sink = RankOutput.ofAllRanks(out, err, false, 1);

    sink.line(0, false, bytes("a long "), End.MORE);
    sink.line(0, false, bytes("line"), End.LINE);
    sink.line(0, false, bytes("no end"), End.STREAM);

    assertThat(written()).isEqualTo("a long line\nno end");
  }

  @Test
  void shouldTagALongLineOnceUnlessAnotherRankInterruptsIt() {
    LineForwarder.Sink sink = RankOutput.ofAllRanks(out, err, true, 2);

    sink.line(0, false, bytes("a "), End.MORE);
    sink.line(0, false, bytes("long "), End.MORE);
    sink.line(1, false, bytes("another"), End.STREAM);
    sink.line(0, false, bytes("line"), End.LINE);

    assertThat(written()).isEqualTo("[0] a long \n[1] another\n[0] line\n");
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device;

import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.Aborted;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Recorded graphs, on any device. */
@Timeout(120)
public abstract class GraphContract extends StreamScenario {
  protected GraphContract(TestDevice kind) {
    super(kind);
  }

  @Test
  void shouldExecuteRecordedWorkAtEachLaunchAndNotBefore() throws Exception {
    try (DeviceBuffer a = device.allocate(5000);
        DeviceBuffer b = device.allocate(5000);
        DeviceBuffer flag = device.allocate(64);
        PinnedBuffer host = device.allocatePinned(5000)) {
      DeviceGraph graph =
          graphOf(
              stream -> {
                fill(stream, a, 3);
                stream
                    .copy(b, 1000, a, 0, 4000)
                    .copy(host, 0, b, 0, 5000)
                    .writeValue(flag, 8, 77)
                    .copy(words, 16, flag, 8, 8)
                    .copy(b, 0, words, 16, 8)
                    .launch(kind.store, 1, 1, KernelArgs.of(words, 5L))
                    .writeValue(words, 8, 6);
              });
      await(first.completion());
      assertThat(word(0) + word(1) + word(2)).isZero();
      assertThat(bytesOf(b)).containsOnly(0);
      assertThat(graph.device()).isSameAs(device);
      for (int launch = 0; launch < 3; launch++) {
        words.buffer().setMemory(0, 64, (byte) 0);
        await(first.launch(graph).completion());
        assertThat(List.of(word(0), word(1), word(2))).containsExactly(5L, 6L, 77L);
        assertThat(host.buffer().getByte(999)).isZero();
        assertThat(host.buffer().getByte(1000)).isEqualTo((byte) 3);
        assertThat(host.buffer().getByte(4999)).isEqualTo((byte) 3);
        assertThat(longOf(b)).isEqualTo(77);
      }
    }
  }

  @Test
  void shouldRunLaunchesOfOneGraphOneAfterTheOtherOnWhateverStreams() throws Exception {
    try (DeviceBuffer counter = device.allocate(8)) {
      DeviceGraph graph = device.record("count", stream -> add(stream, counter));
      for (int i = 0; i < 300; i++) {
        (i % 3 == 0 ? first : second).launch(graph);
      }
      await(second.waitFor(first).copy(words, 8, counter, 0, 8).launch(graph).completion());
      assertThat(List.of(word(1), longOf(counter))).containsExactly(300L, 301L);
      PinnedBuffer gate = hold(first);
      first.launch(graph);
      CompletableFuture<Void> behind = second.launch(graph).completion();
      await(device.createStream("third").writeValue(words, 0, 1).completion());
      assertThat(behind).isNotDone();
      open(gate);
      await(behind);
      assertThat(longOf(counter)).isEqualTo(303);
    }
  }

  @Test
  void shouldHaveSeveralGraphsInFlight() throws Exception {
    List<PinnedBuffer> gates = new ArrayList<>();
    List<CompletableFuture<Void>> done = new ArrayList<>();
    for (int i = 0; i < 4; i++) {
      int number = i;
      PinnedBuffer gate = gate();
      gates.add(gate);
      DeviceGraph graph =
          graphOf(
              stream -> {
                waitAt(gate, stream);
                stream.writeValue(words, 8 * number, number + 1);
              });
      done.add(device.createStream("s" + i).launch(graph).completion());
    }
    for (int i : new int[] {2, 0, 3, 1}) {
      assertThat(done.get(i)).isNotDone();
      open(gates.get(i));
      await(done.get(i));
      assertThat(word(i)).isEqualTo(i + 1);
    }
  }

  @Test
  void shouldForkAndJoinInsideAGraph() throws Exception {
    try (DeviceBuffer a = device.allocate(4096);
        DeviceBuffer b = device.allocate(4096);
        DeviceBuffer c = device.allocate(4096);
        DeviceBuffer counter = device.allocate(8)) {
      DeviceGraph graph =
          graphOf(
              stream -> {
                DeviceStream branch = stream.branch("copies");
                assertThat(stream.branch("copies")).isSameAs(branch);
                for (int round = 1; round <= 3; round++) {
                  fill(stream, a, round);
                  branch.waitFor(stream).copy(b, 0, a, 0, 4096);
                  add(stream, counter);
                  DeviceStream twig = branch.branch("twig");
                  twig.waitFor(branch).copy(c, 0, b, 0, 4096);
                  stream.waitFor(twig).waitFor(stream);
                  add(stream, counter);
                }
                stream.copy(words, 0, c, 0, 8).copy(words, 8, counter, 0, 8);
              });
      for (int launch = 1; launch <= 100; launch++) {
        first.launch(graph);
        fill(first, a, 100); // after the launch and all its branches
        if (launch % 10 == 0) {
          await(first.completion());
          assertThat(word(0)).isEqualTo(0x0303030303030303L);
          assertThat(word(1)).isEqualTo(6L * launch);
          assertThat(bytesOf(c)).containsOnly(3);
        }
      }
    }
  }

  @Test
  void shouldRunBranchesConcurrently() throws Exception {
    PinnedBuffer gate = gate();
    DeviceGraph graph =
        graphOf(
            stream -> {
              DeviceStream branch = stream.branch("b");
              waitAt(gate, stream); // for what the branch does, which is recorded later
              stream.writeValue(words, 0, 1);
              branch.writeValue(gate, 0, 1);
            });
    await(first.launch(graph).completion());
    assertThat(word(0)).isEqualTo(1);
  }

  @Test
  void shouldCompleteALaunchWhenAllItsBranchesAreDone() throws Exception {
    PinnedBuffer gate = gate();
    DeviceGraph graph =
        graphOf(
            stream -> {
              waitAt(gate, stream.branch("b"));
              stream.branch("b").writeValue(words, 0, 1);
              stream.writeValue(words, 8, 1);
            });
    CompletableFuture<Void> done = first.launch(graph).writeValue(words, 16, 1).completion();
    Awaitility.await().until(() -> word(1) == 1);
    assertThat(done).isNotDone();
    assertThat(word(2)).isZero();
    open(gate);
    await(done);
    assertThat(List.of(word(0), word(2))).containsExactly(1L, 1L);
  }

  @Test
  void shouldDiscardARecordingThatThrows() throws Exception {
    try (DeviceBuffer a = device.allocate(4 << 20)) {
      int users = kind.users(a);
      RuntimeException thrown = new IllegalStateException("thrown");
      for (int i = 0; i < 20; i++) {
        assertThatThrownBy(
                () ->
                    graphOf(
                        stream -> {
                          fill(stream, a, 1);
                          fill(stream.branch("b"), a, 1);
                          throw thrown;
                        }))
            .isSameAs(thrown);
      }
      assertThat(kind.users(a)).isEqualTo(users);
      DeviceGraph graph = device.record("good", stream -> fill(stream, a, 2));
      await(first.launch(graph).completion());
      assertThat(bytesOf(a.slice(0, 100))).containsOnly(2);
    }
  }

  @Test
  void shouldRefuseOperationsThatCannotBeRecorded() throws Exception {
    DeviceGraph other = graphOf(stream -> {});
    AtomicReference<DeviceStream> kept = new AtomicReference<>();
    AtomicReference<DeviceStream> branch = new AtomicReference<>();
    DeviceGraph graph =
        graphOf(
            stream -> {
              kept.set(stream);
              branch.set(stream.branch("b"));
              for (DeviceStream each : List.of(stream, branch.get())) {
                assertRefused(each::completion);
                assertRefused(each::close);
                assertRefused(() -> each.launch(other));
                assertRefused(() -> each.waitFor(first));
                assertRefused(() -> first.waitFor(each));
                assertRefused(() -> each.writeValue(words, 4, 1));
                device.record("inner", inner -> assertRefused(() -> each.waitFor(inner)));
                CompletableFuture<Void> elsewhere =
                    CompletableFuture.runAsync(
                        () -> assertRefused(() -> each.writeValue(words, 0, 1)));
                assertThat(elsewhere).succeedsWithin(40, TimeUnit.SECONDS);
              }
              stream.writeValue(words, 0, 1);
            });
    for (DeviceStream each : List.of(kept.get(), branch.get())) {
      assertRefused(() -> each.writeValue(words, 0, 1));
      assertRefused(() -> each.branch("late"));
      assertRefused(() -> each.waitFor(each));
      assertRefused(each::completion);
      assertRefused(each::close);
    }
    await(first.launch(graph).launch(other).completion());
    assertThat(word(0)).isEqualTo(1);
  }

  @Test
  void shouldExecuteWorkOnOtherStreamsImmediatelyWhileRecording() throws Exception {
    DeviceGraph graph =
        graphOf(
            stream -> {
              try (DeviceBuffer made = device.allocate(2 << 20)) {
                fill(first, made, 4);
                await(first.completion());
                assertThat(bytesOf(made.slice(0, 64))).containsOnly(4);
                stream.copy(words, 0, made, 0, 8);
              } catch (Exception e) {
                throw new AssertionError(e);
              }
            });
    assertThat(word(0)).isZero();
    await(first.launch(graph).completion()); // the graph has kept the buffer
    assertThat(word(0)).isEqualTo(0x0404040404040404L);
  }

  @Test
  void shouldRefuseToLaunchClosedOrForeignGraphs() throws Exception {
    DeviceGraph graph = device.record("g", stream -> stream.writeValue(words, 0, 1));
    try (Device again = kind.open(0)) {
      DeviceStream foreign = again.createStream("foreign");
      assertRefused(() -> foreign.launch(graph));
    }
    second.close();
    assertRefused(() -> second.launch(graph));
    graph.close();
    graph.close();
    assertRefused(() -> first.launch(graph));
    await(first.completion());
    assertThat(word(0)).isZero();
  }

  @Test
  void shouldKeepItsBuffersUntilItIsClosedAndItsLaunchesAreDone() throws Exception {
    DeviceBuffer a = device.allocate(4 << 20);
    DeviceBuffer b = device.allocate(4 << 20);
    DeviceGraph graph =
        graphOf(
            stream -> {
              fill(stream, a.slice(0, 8), 7);
              stream.copy(b, 8, a, 0, 8).copy(words, 0, b, 8, 8);
            });
    a.close();
    b.close();
    await(first.launch(graph).completion());
    assertThat(word(0)).isEqualTo(0x0707070707070707L);
    words.buffer().putLongRelease(0, 0);
    PinnedBuffer gate = hold(first);
    CompletableFuture<Void> done = first.launch(graph).completion();
    graph.close();
    assertThat(kind.users(a)).isPositive();
    assertThat(kind.users(b)).isPositive();
    open(gate);
    await(done);
    assertThat(word(0)).isEqualTo(0x0707070707070707L);
    Awaitility.await().until(() -> kind.users(a) == 0 && kind.users(b) == 0);
  }

  @Test
  void shouldCloseGraphsAfterTheirLaunchesIfTheDeviceIsClosed() {
    PinnedBuffer gate = gate();
    DeviceBuffer a = device.allocate(4 << 20);
    DeviceGraph graph =
        graphOf(
            stream -> {
              announceAndWaitAt(gate, stream);
              fill(stream, a, 1);
            });
    a.close();
    CompletableFuture<Void> done = first.launch(graph).completion();
    Awaitility.await().until(() -> word(3) == 1);
    device.close();
    assertThatThrownBy(() -> await(done)).hasCauseInstanceOf(Aborted.class);
    assertRefused(() -> first.launch(graph));
    assertRefused(() -> graphOf(stream -> {}));
    assertThat(kind.users(a)).isPositive();
    open(gate);
    Awaitility.await().until(() -> kind.users(a) == 0);
  }

  /** Enqueues work that sets word 3 and then waits: once the word is set, it isn't dropped. */
  protected void announceAndWaitAt(PinnedBuffer gate, DeviceStream stream) {
    stream.writeValue(words, 24, 1);
    waitAt(gate, stream);
  }

  @Test
  void shouldEndWhenItsStreamIsClosedWhileBranchesRun() {
    AtomicInteger runs = new AtomicInteger();
    PinnedBuffer gate = gate();
    DeviceGraph graph =
        graphOf(
            stream -> {
              DeviceStream branch = stream.branch("b");
              announceAndWaitAt(gate, branch);
              branch.writeValue(words, 0, 1);
              stream.writeValue(words, 8, 1).waitFor(branch).writeValue(words, 16, 1);
            });
    CompletableFuture<Void> done = first.launch(graph).completion();
    Awaitility.await().until(() -> word(1) == 1 && word(3) == 1);
    CompletableFuture<Void> behind = second.waitFor(first).completion();
    first.close();
    assertThatThrownBy(() -> await(done)).hasCauseInstanceOf(Aborted.class);
    device.whenEnqueuedWorkIsDone(runs::incrementAndGet);
    assertThat(runs).hasValue(0);
    assertThat(behind).isNotDone();
    open(gate);
    Awaitility.await().until(() -> runs.get() == 1 && behind.isDone());
  }

  @Test
  void shouldEndSpinningKernelsIfTheAbortFlagIsSet() throws Exception {
    try (AbortFlag abort = new AbortFlag(device)) {
      DeviceGraph graph =
          graphOf(
              stream -> {
                DeviceStream branch = stream.branch("b");
                for (DeviceStream each : List.of(stream, branch)) {
                  each.launch(kind.spin, 1, 1, KernelArgs.of(abort.deviceAddress(), 1L));
                }
                branch.writeValue(words, 0, 1);
              });
      CompletableFuture<Void> done = first.launch(graph).launch(graph).completion();
      await(second.writeValue(words, 8, 1).completion());
      assertThat(done).isNotDone();
      abort.set();
      await(done);
      assertThat(word(0)).isEqualTo(1);
      graph.close();
    }
  }

  @Test
  void shouldLaunchFromManyThreads() throws Exception {
    try (DeviceBuffer counter = device.allocate(8)) {
      DeviceGraph graph =
          graphOf(
              stream -> {
                add(stream, counter);
                stream.branch("b").waitFor(stream);
                add(stream.branch("b"), counter);
              });
      List<CompletableFuture<Void>> threads = new ArrayList<>();
      for (int t = 0; t < 4; t++) {
        DeviceStream mine = t % 2 == 0 ? first : second;
        threads.add(
            CompletableFuture.runAsync(
                () -> {
                  for (int i = 0; i < 50; i++) {
                    mine.launch(graph);
                  }
                }));
      }
      await(CompletableFuture.allOf(threads.toArray(CompletableFuture[]::new)));
      await(first.completion());
      await(second.completion());
      assertThat(longOf(counter)).isEqualTo(400);
    }
  }
}

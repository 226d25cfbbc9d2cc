// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static io.fluxccl.DataType.INT32;
import static io.fluxccl.ReduceOp.SUM;
import static io.fluxccl.testing.OnRanks.Runner.lane;
import static io.fluxccl.testing.Outcomes.fails;
import static io.fluxccl.testing.Outcomes.failsJob;
import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.fluxccl.Aborted;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.PinnedBuffer;
import io.fluxccl.device.cuda.CudaBuffer;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.device.cuda.CudaStream;
import io.fluxccl.device.cuda.EngineMemory;
import io.fluxccl.device.cuda.EngineStream;
import io.fluxccl.testing.EmulatedGpus;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.LocalRanks;
import java.time.Duration;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Collectives on an engine's memory and streams. Two ranks of one JVM, each on a GPU. */
@Timeout(300)
abstract class EngineMemoryContract {
  private static final Duration LONG = Duration.ofSeconds(60);

  private interface Body {
    void run(LocalRank rank, Collectives collectives, EngineMemory engine) throws Exception;
  }

  private static void onEachRank(Body body) {
    try (LocalRanks ranks = LocalRanks.onGpus(2)) {
      ranks.run(
          Duration.ofSeconds(240),
          rank -> {
            EngineMemory engine = new EngineMemory((CudaDevice) rank.device());
            try (Collectives collectives = Collectives.create(rank.communicator()).join()) {
              body.run(rank, collectives, engine);
              rank.awaitAll();
            }
            rank.awaitAll(); // no rank uses the memory any more when its owner frees it
            engine.close();
          });
    }
  }

  private static int[] counts() {
    return EmulatedGpus.HERE ? new int[] {1000} : new int[] {1, 1000, 100_003, 3 << 20};
  }

  @ParameterizedTest
  @EnumSource
  void shouldDoEveryCollectiveOnRegisteredMemory(EngineMemory.Kind kind) {
    doAll(kind, true);
  }

  @ParameterizedTest
  @EnumSource
  void shouldDoEveryCollectiveOnMemoryThatIsNotRegistered(EngineMemory.Kind kind) {
    doAll(kind, false);
  }

  private static void doAll(EngineMemory.Kind kind, boolean registered) {
    try (CudaDevice device = CudaDevice.open(0);
        EngineMemory engine = new EngineMemory(device)) {
      assumeTrue(engine.has(kind), "JCuda or the driver can't allocate it here");
    }
    onEachRank(
        (rank, collectives, engine) -> {
          EngineCollectives ranks = new EngineCollectives(collectives);
          for (int count : counts()) {
            ranks.doAll(engine, kind, count, registered);
          }
        });
  }

  @Test
  void shouldAgreeThatABufferIsStagedIfOneRankCanNotShareIt() {
    onEachRank(
        (rank, collectives, engine) ->
            new EngineCollectives(collectives).agreeOnWhatIsStaged(engine));
  }

  @ParameterizedTest
  @ValueSource(booleans = {false, true})
  void shouldReplayTheEnginesGraphWithCollectives(boolean registered) {
    onEachRank(
        (rank, collectives, engine) ->
            new EngineCollectives(collectives)
                .replay(
                    engine,
                    EmulatedGpus.HERE ? 600 : 100_000,
                    registered,
                    EmulatedGpus.HERE ? 100 : 1000,
                    EngineStream.THREAD_LOCAL));
  }

  @Test
  void shouldRefuseUncapturableStepsInACaptureAndStayUsable() {
    onEachRank(
        (rank, collectives, engine) -> {
          CudaDevice device = (CudaDevice) rank.device();
          CudaBuffer x = engine.allocate(EngineMemory.Kind.LARGE_BLOCK, 4096);
          x.upload(0, new byte[4096]);
          try (EngineStream owner = new EngineStream(device);
              CudaStream stream = device.wrapStream(owner.address());
              Collectives lane = collectives.lane(stream).join();
              CapturedPipeline captured = lane.pipeline().allReduce(x, INT32, SUM).capture()) {
            lane.allReduce(x, INT32, SUM).block(LONG);
            owner.beginCapture(EngineStream.THREAD_LOCAL);
            refused(lane.pipeline().after(collectives.pipeline()).allReduce(x, INT32, SUM));
            refused(
                lane.pipeline()
                    .then(collectives, CollectiveCall.allReduce(x, x, 1024, INT32, SUM)));
            // In a capture its steps are enqueued instead of its graph.
            assertThat(captured.run().toFuture()).isDone().isNotCompletedExceptionally();
            owner.endCapture();
            owner.replay();
            owner.await();
            captured.run().block(LONG);
            collectives.allReduce(x, INT32, SUM).block(LONG);
          }
          x.close();
        });
  }

  private static void refused(Pipeline pipeline) {
    fails(pipeline.run().toFuture(), InvalidUsage.class, "captured by the stream's owner");
  }

  @Test
  void shouldRefuseCheckedCollectivesInACaptureAndStreamsOfOtherDevices() {
    onEachRank(
        (rank, collectives, engine) -> {
          CudaDevice device = (CudaDevice) rank.device();
          CudaBuffer x = engine.allocate(EngineMemory.Kind.LARGE_BLOCK, 4096);
          CollectivesOptions checked = CollectivesOptions.DEFAULT.withChecks(true).withTag(100);
          try (CudaDevice another = CudaDevice.open(device.index());
              EngineStream owner = new EngineStream(device);
              CudaStream stream = device.wrapStream(owner.address());
              Collectives slow = lane(rank, checked);
              Collectives lane = slow.lane(stream).join()) {
            lane.allReduce(x, INT32, SUM).block(LONG);
            rank.awaitAll();
            owner.beginCapture(EngineStream.THREAD_LOCAL);
            fails(lane.allReduce(x, INT32, SUM).toFuture(), InvalidUsage.class, "checked mode");
            owner.add(x.address(), 1);
            owner.endCapture();
            lane.allReduce(x, INT32, SUM).block(LONG);
            fails(slow.lane(another.createStream("another")), InvalidUsage.class);
          }
          x.close();
        });
  }

  @Test
  void shouldReleaseMemoryIfItsOwnerFreedItTooEarly() {
    onEachRank(
        (rank, collectives, engine) -> {
          CudaBuffer x = engine.allocate(EngineMemory.Kind.LARGE_BLOCK, 4096);
          Registration registration = collectives.register(x).join();
          collectives.allReduce(x, INT32, SUM).block(LONG);
          rank.awaitAll();
          engine.close();
          rank.awaitAll();
          fails(collectives.register(x), InvalidUsage.class, "freed by its owner");
          registration.close();
          x.close();
          try (DeviceBuffer own = rank.device().allocate(4096)) {
            collectives.allReduce(own, INT32, SUM).block(LONG);
          }
          assertThat(rank.communicator().failure()).isNull();
        });
  }

  @ParameterizedTest
  @ValueSource(booleans = {false, true})
  void shouldEndTheEnginesReplayWhenARankEndsTheJob(boolean beginsBehindTheEnd) {
    onEachRank(
        (rank, collectives, engine) -> {
          CudaDevice device = (CudaDevice) rank.device();
          CudaBuffer x = engine.allocate(EngineMemory.Kind.LARGE_BLOCK, 4096);
          try (PinnedBuffer gate = device.allocatePinned(Long.BYTES);
              EngineStream owner = new EngineStream(device);
              CudaStream stream = device.wrapStream(owner.address());
              Collectives lane = collectives.lane(stream).join()) {
            lane.allReduce(x, INT32, SUM).block(LONG);
            owner.beginCapture(EngineStream.THREAD_LOCAL);
            lane.allReduce(x, INT32, SUM).block(LONG);
            owner.endCapture();
            owner.replay();
            owner.await();
            rank.awaitAll();
            if (rank.rank() == 0) {
              gate.buffer().putLongRelease(0, 0);
              if (beginsBehindTheEnd) {
                owner.waitFor(gate.deviceAddress(), 1);
              }
              owner.replay(); // the other rank never replays its graph
              try {
                rank.awaitAll();
                assertThat(rank.communicator().failed()).succeedsWithin(LONG);
                rank.awaitAll(); // the other rank has closed its lane
              } finally {
                gate.buffer().putLongRelease(0, 1); // closing the stream waits for it
              }
              owner.await();
            } else {
              rank.awaitAll();
              rank.communicator().abort(Aborted.of(1, "rank 1 has had enough"));
              assertThat(rank.communicator().failed()).succeedsWithin(LONG);
              lane.close();
              rank.awaitAll();
            }
            failsJob(rank, FluxCclException.class, "had enough");
          }
          x.close();
        });
  }
}

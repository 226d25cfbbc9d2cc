// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.docs;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.collective.Collectives;
import io.fluxccl.collective.Registration;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.FloatView;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.device.cuda.CudaStream;
import io.fluxccl.device.cuda.EngineMemory;
import io.fluxccl.device.cuda.EngineStream;
import io.fluxccl.testing.EmulatedGpus;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.Ranks;
import org.junit.jupiter.api.Test;
import reactor.core.publisher.Mono;

/** The code of {@code docs/15-your-own-memory-and-streams.md}. */
@EmulatedGpus
@Ranks(value = 2, onGpus = true, leakCheck = false)
class OwnMemoryAndStreamsTest {
  private static final int COUNT = 1000;
  private static final long BYTES = 4 * COUNT;

  @Test
  void shouldAllReduceAnEnginesTensorOnItsStream(LocalRank rank) {
    CudaDevice device = (CudaDevice) rank.device();
    EngineMemory engine = new EngineMemory(device);
    EngineStream queue = new EngineStream(device);
    long address = engine.tensor(EngineMemory.Kind.LARGE_BLOCK, BYTES);
    long handle = queue.address();
    try (Collectives collectives = rank.collectives()) {
      DeviceBuffer tensor = device.wrap(address, BYTES); // frees nothing
      CudaStream stream = device.wrapStream(handle); // destroys nothing
      Collectives lane = collectives.lane(stream).join(); // on every rank, in the same order

      Registration registration = lane.register(tensor).join();
      registration.stagedReason().ifPresent(why -> System.out.println("copied: " + why));

      Mono<Void> sum = lane.allReduce(tensor, DataType.FLOAT32, ReduceOp.SUM);
      FloatView.of(tensor).put(new float[COUNT]);
      sum.block();
      capture(queue, sum);
      assertThat(FloatView.of(tensor).get(3)).isZero();
      rank.awaitAll();

      // GOOD: all ranks release the tensor before the engine frees or moves it
      queue.await(); // the engine's graph is done
      registration.close();
      tensor.close();
      lane.close();
      stream.close();
      rank.awaitAll();
    }
    rank.awaitAll();
    queue.close();
    engine.close();
  }

  private static void capture(EngineStream queue, Mono<Void> sum) {
    queue.beginCapture(EngineStream.THREAD_LOCAL); // cuStreamBeginCapture
    sum.block(); // recorded, and complete
    queue.endCapture(); // cuStreamEndCapture, cuGraphInstantiate
    queue.replay(); // cuGraphLaunch: runs it once
    queue.await(); // the engine waits for its graph
  }
}

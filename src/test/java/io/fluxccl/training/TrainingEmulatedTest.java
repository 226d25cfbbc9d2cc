// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.training;

import static io.fluxccl.testing.Outcomes.completes;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.collective.Collectives;
import io.fluxccl.collective.NamedCollectives;
import io.fluxccl.concurrent.Closing;
import io.fluxccl.device.FloatView;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.device.cuda.CudaStream;
import io.fluxccl.device.cuda.EngineMemory;
import io.fluxccl.device.cuda.EngineStream;
import io.fluxccl.testing.EmulatedGpus;
import io.fluxccl.testing.OnRanks;
import io.fluxccl.testing.RequiresNativeLibrary;
import io.fluxccl.testkit.LocalRank;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.Map;
import org.junit.jupiter.api.Test;
import reactor.core.publisher.Mono;

/** Training on the memory and the stream of an engine, on GPUs whose kernels run on the CPU. */
@EmulatedGpus
@RequiresNativeLibrary
@OnRanks(2)
class TrainingEmulatedTest {
  private static final Duration LONG = Duration.ofSeconds(60);
  private static final int SIZE = 1000;
  private static final EngineMemory.Kind[] KINDS = {
    EngineMemory.Kind.SMALL_BLOCK, EngineMemory.Kind.POOL
  };

  /** Returns a number that the engine's kernel adds to two floats of 0 to make them a value. */
  private static long twice(float value) {
    long bits = Float.floatToIntBits(value);
    return bits << Integer.SIZE | bits;
  }

  private static Map<String, FloatView> tensors(EngineMemory engine) {
    Map<String, FloatView> tensors = new LinkedHashMap<>();
    for (EngineMemory.Kind kind : KINDS) {
      FloatView tensor = FloatView.of(engine.allocate(kind, SIZE * Float.BYTES));
      tensor.put(new float[SIZE]);
      tensors.put(kind.name(), tensor);
    }
    return tensors;
  }

  @Test
  void shouldAverageGradientsThatAnEngineComputesOnItsStream(LocalRank rank) {
    CudaDevice device = (CudaDevice) rank.device();
    try (EngineMemory memory = new EngineMemory(device);
        EngineStream engine = new EngineStream(device);
        CudaStream stream = device.wrapStream(engine.address());
        Collectives lane = rank.collectives().lane(stream).join();
        NamedCollectives named = lane.named().join()) {
      Map<String, FloatView> gradients = tensors(memory);
      try (GradientReducer reducer = GradientReducer.of(named, gradients)) {
        for (int step = 1; step <= 3; step++) {
          float own = step + rank.rank();
          gradients.forEach((name, view) -> view.put(new float[SIZE]));
          reducer.begin();
          gradients.forEach(
              (name, view) -> {
                engine.add(view.buffer().address(), twice(own));
                completes(Mono.fromFuture(stream.completion()));
                reducer.ready(name);
              });
          completes(reducer.finish());
          float expected = step + 0.5f;
          gradients.forEach(
              (name, view) -> assertThat(view.toArray()).startsWith(expected, expected, 0));
        }
        averageOfOneRank(rank, reducer, gradients);
      }
      rank.awaitAll();
      Closing.all(gradients.values());
    }
  }

  private static void averageOfOneRank(
      LocalRank rank, GradientReducer reducer, Map<String, FloatView> gradients) {
    if (rank.rank() == 0) {
      reducer.begin();
      gradients.forEach((name, view) -> view.put(SIZE - 1, 3));
      completes(reducer.finish());
    }
    assertThat(reducer.join().collectList().block(LONG)).hasSize(rank.rank());
    gradients.forEach((name, view) -> assertThat(view.get(SIZE - 1)).isEqualTo(3));
  }

  @Test
  void shouldRestoreMemoryOfAnEngine(LocalRank rank) {
    CudaDevice device = (CudaDevice) rank.device();
    try (EngineMemory memory = new EngineMemory(device);
        EngineStream engine = new EngineStream(device);
        CudaStream stream = device.wrapStream(engine.address())) {
      Map<String, FloatView> parameters = tensors(memory);
      parameters.forEach(
          (name, view) -> engine.add(view.buffer().address(), twice(1 + rank.rank())));
      completes(Mono.fromFuture(stream.completion()));
      ParameterSync sync = ParameterSync.of(rank, parameters);
      assertThat(sync.restore(10 * rank.rank()).block(LONG)).isEqualTo(10);
      parameters.forEach((name, view) -> assertThat(view.toArray()).startsWith(2, 2, 0));
      completes(sync.check());
      rank.awaitAll();
      Closing.all(parameters.values());
    }
  }
}

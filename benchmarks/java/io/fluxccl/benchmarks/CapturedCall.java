// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.benchmarks;

import io.fluxccl.collective.AlgorithmFamily;
import io.fluxccl.collective.AlgorithmSet;
import io.fluxccl.collective.BoundCall;
import io.fluxccl.collective.CollectiveAlgorithm;
import io.fluxccl.collective.PeerConnections;
import io.fluxccl.collective.RankTopology;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.device.cuda.CudaStream;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.ServiceLoader;
import java.util.concurrent.CompletableFuture;
import jcuda.driver.CUgraph;
import jcuda.driver.CUresult;
import jcuda.driver.CUstreamCaptureMode;
import jcuda.driver.JCudaDriver;

/**
 * An algorithm that does nothing but record what the best of the library's algorithms would launch:
 * so that others can launch it.
 */
final class CapturedCall implements AlgorithmFamily {
  /** The algorithm's name. */
  static final String NAME = "captured-call";

  private final CudaDevice device;
  private final int times;
  private CUgraph graph;

  /** Records each call {@code times} times in succession. */
  CapturedCall(CudaDevice device, int times) {
    this.device = device;
    this.times = times;
  }

  /** Returns the graph of the last call's launches. */
  CUgraph graph() {
    return graph;
  }

  @Override
  public String name() {
    return NAME;
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
    List<AlgorithmSet> sets = new ArrayList<>();
    CompletableFuture<Void> done = CompletableFuture.completedFuture(null);
    List<AlgorithmFamily> families =
        ServiceLoader.load(AlgorithmFamily.class).stream()
            .map(ServiceLoader.Provider::get)
            .filter(family -> family.supports(peers.topology()))
            .sorted(Comparator.comparing(AlgorithmFamily::name))
            .toList();
    for (AlgorithmFamily family : families) {
      done = done.thenCompose(ready -> family.prepare(peers)).thenAccept(sets::add);
    }
    return done.thenApply(ready -> new Recorded(sets));
  }

  private final class Recorded implements AlgorithmSet, CollectiveAlgorithm {
    private final List<AlgorithmSet> sets;

    Recorded(List<AlgorithmSet> sets) {
      this.sets = sets;
    }

    private CollectiveAlgorithm best(BoundCall call) {
      return sets.stream()
          .flatMap(set -> set.algorithms().stream())
          .filter(algorithm -> algorithm.supports(call))
          .min(Comparator.comparingDouble(algorithm -> algorithm.estimate(call)))
          .orElse(null);
    }

    @Override
    public List<CollectiveAlgorithm> algorithms() {
      return List.of(this);
    }

    @Override
    public CompletableFuture<Void> reserve(long bytes) {
      CompletableFuture<Void> done = CompletableFuture.completedFuture(null);
      for (AlgorithmSet set : sets) {
        done = done.thenCompose(ready -> set.reserve(bytes));
      }
      return done;
    }

    @Override
    public String name() {
      return NAME;
    }

    @Override
    public boolean supports(BoundCall call) {
      return best(call) != null;
    }

    @Override
    public double estimate(BoundCall call) {
      return Double.MAX_VALUE;
    }

    @Override
    public void enqueue(DeviceStream ignored, BoundCall call) {
      CudaStream stream = device.createStream(NAME);
      check(
          JCudaDriver.cuStreamBeginCapture(
              stream.handle(), CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED));
      for (int i = 0; i < times; i++) {
        best(call).enqueue(stream, call);
      }
      graph = new CUgraph();
      check(JCudaDriver.cuStreamEndCapture(stream.handle(), graph));
      stream.close();
    }

    private void check(int result) {
      if (result != CUresult.CUDA_SUCCESS) {
        throw new IllegalStateException("the driver refused to record: CUresult " + result);
      }
    }

    @Override
    public void close() {
      sets.forEach(AlgorithmSet::close);
    }
  }
}

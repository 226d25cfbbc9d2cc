// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.engine;

import io.fluxccl.collective.CapturedPipeline;
import io.fluxccl.group.DeviceChoice;
import io.fluxccl.group.JoinOptions;
import io.fluxccl.group.RankGroup;
import io.fluxccl.samples.inference.engine.TextRequest.Sampling;
import io.fluxccl.samples.inference.model.LlamaConfig;
import io.fluxccl.samples.inference.model.TensorSource;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import reactor.core.publisher.Mono;

/** All ranks of a model in this JVM, without a server: for tests and measurements. */
final class LocalModels implements AutoCloseable {
  private final LlamaConfig config;
  private final List<RankGroup> groups;
  private final List<RankModel> models;
  private final Batch batch;

  private LocalModels(
      LlamaConfig config, ModelOptions options, List<RankGroup> groups, List<RankModel> models) {
    this.config = config;
    this.groups = groups;
    this.models = models;
    this.batch = new Batch(options, Set.of());
  }

  /** Called after each step that gave a token. */
  interface Listener {
    void token(int index, float[] logits);
  }

  static LocalModels open(
      int nRanks,
      DeviceChoice device,
      LlamaConfig config,
      TensorSource weights,
      ModelOptions options) {
    List<RankGroup> groups = RankGroup.local(nRanks, JoinOptions.of(0, 1).withDevice(device));
    try {
      List<CompletableFuture<RankModel>> opening =
          groups.stream()
              .map(
                  group ->
                      CompletableFuture.supplyAsync(
                          () -> {
                            RankModel model = new RankModel(group, config, weights, options);
                            model.join(group);
                            return model;
                          },
                          task -> new Thread(task).start()))
              .toList();
      List<RankModel> models = opening.stream().map(CompletableFuture::join).toList();
      return new LocalModels(config, options, groups, models);
    } catch (RuntimeException | Error e) {
      RankGroup.closeAll(groups);
      throw e;
    }
  }

  /** Returns the device that the ranks are on. */
  String device() {
    return groups.get(0).device().description();
  }

  /** Returns the group of rank 0. */
  RankGroup group() {
    return groups.get(0);
  }

  /** Runs a step on all ranks. */
  void step(byte[] command) {
    steps(command).block();
  }

  /** Returns a step on all ranks, begun by each subscription. */
  Mono<Void> steps(byte[] command) {
    return Mono.when(models.stream().map(model -> Mono.defer(() -> model.step(command))).toList());
  }

  /** Captures a step on all ranks without its all-reduces; its rows are those of the last step. */
  List<CapturedPipeline> withoutReduces(int size) {
    return models.stream().map(model -> model.withoutReduces(size)).toList();
  }

  /** Returns the logits of a chosen row of the last step, of all ranks. */
  float[] logits(int row) {
    int width = config.vocabulary() / models.size();
    float[] all = new float[config.vocabulary()];
    for (int rank = 0; rank < models.size(); rank++) {
      System.arraycopy(models.get(rank).logits(row), 0, all, rank * width, width);
    }
    return all;
  }

  /** Generates for prompts that share a batch. */
  List<List<Integer>> generate(List<int[]> prompts, int count, Sampling sampling) {
    return generate(prompts, count, sampling, null);
  }

  /** Generates tokens. If there is one prompt, the listener gets the logits after each step. */
  List<List<Integer>> generate(
      List<int[]> prompts, int count, Sampling sampling, Listener listener) {
    List<Sequence> sequences = new ArrayList<>();
    List<List<Integer>> results = new ArrayList<>();
    for (int[] prompt : prompts) {
      sequences.add(new Sequence(prompt.clone(), count, sampling, null));
      results.add(new ArrayList<>());
      if (!batch.add(sequences.get(sequences.size() - 1))) {
        throw new IllegalStateException(prompts.size() + " prompts are more than maxWaiting");
      }
    }
    for (byte[] command = batch.nextStep(); command != null; command = batch.nextStep()) {
      step(command);
      for (Batch.Token token : batch.finishStep(models.get(0))) {
        List<Integer> result = results.get(sequences.indexOf(token.sequence()));
        if (listener != null) {
          listener.token(result.size(), logits(0));
        }
        result.add(token.token());
      }
    }
    return results;
  }

  int pagesUsed() {
    return batch.pagesUsed();
  }

  @Override
  public void close() {
    models.forEach(RankModel::close);
    RankGroup.closeAll(groups);
  }
}

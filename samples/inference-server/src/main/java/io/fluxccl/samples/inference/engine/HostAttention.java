// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.engine;

import static io.fluxccl.samples.inference.engine.ModelOptions.PAGE;

import io.fluxccl.device.PinnedBuffer;
import io.fluxccl.samples.inference.model.LlamaConfig;
import java.util.Arrays;

/**
 * Attention over a paged cache, on the host device, for one rank's heads. A page has the keys and
 * values of {@link ModelOptions#PAGE} tokens of one sequence. Keys of a page lie element by
 * element, so that the scores of its tokens are computed together.
 */
final class HostAttention {
  private final int heads;
  private final int kvHeads;
  private final int headDim;
  private final PinnedBuffer step;
  private final float epsilon;
  private final float[] frequencies;
  private final float ropeScale;

  /** By layer: {@code [page][kvHead][element][token]}. */
  private final float[][] keys;

  /** By layer: {@code [page][kvHead][token][element]}. */
  private final float[][] values;

  /** By sequence, then by the number of the page in the sequence. */
  private final int[][] pages;

  private final float[] cos;
  private final float[] sin;
  private final float[] scores;
  private final float[] sums;

  /**
   * The parameters of one layer.
   *
   * @param queryGain of a norm of each query; null for no norm
   * @param keyGain of a norm of each key; null for no norm
   * @param window how many tokens up to its own a token attends to; 0 for all
   */
  record Layer(int number, float[] queryGain, float[] keyGain, int window) {}

  HostAttention(
      LlamaConfig config, ModelOptions options, LlamaConfig.Heads own, PinnedBuffer step) {
    this.heads = own.count();
    this.kvHeads = own.kvCount();
    this.headDim = config.headDim();
    this.step = step;
    this.epsilon = config.epsilon();
    this.frequencies = config.rope().inverseFrequencies();
    this.ropeScale = config.rope().scale();
    int size = options.pages() * PAGE * kvHeads * headDim;
    this.keys = new float[config.layers()][size];
    this.values = new float[config.layers()][size];
    int pagesOfSequence = (config.context() + PAGE - 1) / PAGE;
    this.pages = new int[options.maxSequences()][pagesOfSequence];
    this.cos = new float[frequencies.length];
    this.sin = new float[frequencies.length];
    this.scores = new float[pagesOfSequence * PAGE];
    this.sums = new float[headDim];
  }

  int inputWidth() {
    return (heads + 2 * kvHeads) * headDim;
  }

  int outputWidth() {
    return heads * headDim;
  }

  void attend(Layer layer, int count, float[] qkv, float[] out) {
    for (int index = 0; index < count; index++) {
      StepRows.Row row = StepRows.row(step.buffer(), index);
      pages[row.sequence()][row.position() / PAGE] = row.slot() / PAGE;
      int at = index * inputWidth();
      for (int i = 0; i < frequencies.length; i++) {
        double angle = (double) row.position() * frequencies[i];
        cos[i] = (float) Math.cos(angle) * ropeScale;
        sin[i] = (float) Math.sin(angle) * ropeScale;
      }
      for (int head = 0; head < heads + kvHeads; head++) {
        normalise(qkv, at + head * headDim, head < heads ? layer.queryGain : layer.keyGain);
        turn(qkv, at + head * headDim);
      }
      store(layer.number, row.slot(), qkv, at + heads * headDim);
    }
    for (int index = 0; index < count; index++) {
      StepRows.Row row = StepRows.row(step.buffer(), index);
      for (int head = 0; head < heads; head++) {
        int query = index * inputWidth() + head * headDim;
        attend(layer, row, head * kvHeads / heads, qkv, query);
        System.arraycopy(sums, 0, out, index * outputWidth() + head * headDim, headDim);
      }
    }
  }

  private void normalise(float[] vector, int at, float[] gain) {
    if (gain != null) {
      float squares = 0;
      for (int i = 0; i < headDim; i++) {
        squares += vector[at + i] * vector[at + i];
      }
      float scale = (float) (1 / Math.sqrt(squares / headDim + epsilon));
      for (int i = 0; i < headDim; i++) {
        vector[at + i] *= scale * gain[i];
      }
    }
  }

  /** RoPE: turns the pairs of an element and the one half a head later. */
  private void turn(float[] vector, int at) {
    int half = frequencies.length;
    for (int i = 0; i < half; i++) {
      float x = vector[at + i];
      float y = vector[at + half + i];
      vector[at + i] = x * cos[i] - y * sin[i];
      vector[at + half + i] = y * cos[i] + x * sin[i];
    }
  }

  private void store(int layer, int slot, float[] from, int at) {
    for (int head = 0; head < kvHeads; head++) {
      int block = (slot / PAGE * kvHeads + head) * headDim * PAGE;
      for (int i = 0; i < headDim; i++) {
        keys[layer][block + i * PAGE + slot % PAGE] = from[at + head * headDim + i];
        values[layer][block + slot % PAGE * headDim + i] =
            from[at + (kvHeads + head) * headDim + i];
      }
    }
  }

  /** Leaves in {@link #sums} what a query finds among the tokens up to its own. */
  private void attend(Layer layer, StepRows.Row row, int kvHead, float[] qkv, int query) {
    int length = row.position() + 1;
    int first = layer.window > 0 ? Math.max(0, length - layer.window) : 0;
    int[] own = pages[row.sequence()];
    float scale = (float) (1 / Math.sqrt(headDim));
    for (int page = first / PAGE; page * PAGE < length; page++) {
      int block = (own[page] * kvHeads + kvHead) * headDim * PAGE;
      score(keys[layer.number], block, qkv, query, scale, page * PAGE);
    }
    float most = Float.NEGATIVE_INFINITY;
    for (int i = first; i < length; i++) {
      most = Math.max(most, scores[i]);
    }
    float all = 0;
    Arrays.fill(sums, 0);
    for (int i = first; i < length; i++) {
      float weight = (float) Math.exp(scores[i] - most);
      all += weight;
      int value = ((own[i / PAGE] * kvHeads + kvHead) * PAGE + i % PAGE) * headDim;
      add(weight, values[layer.number], value);
    }
    for (int i = 0; i < headDim; i++) {
      sums[i] /= all;
    }
  }

  private void score(float[] from, int block, float[] qkv, int query, float scale, int to) {
    Arrays.fill(scores, to, to + PAGE, 0);
    for (int i = 0; i < headDim; i++) {
      float x = qkv[query + i] * scale;
      int key = block + i * PAGE;
      for (int token = 0; token < PAGE; token++) {
        scores[to + token] += x * from[key + token];
      }
    }
  }

  private void add(float weight, float[] from, int value) {
    for (int i = 0; i < headDim; i++) {
      sums[i] += weight * from[value + i];
    }
  }
}

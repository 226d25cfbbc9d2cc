// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.model;

import java.util.Optional;
import java.util.Set;
import java.util.function.IntToDoubleFunction;

/**
 * Rotary position embeddings. transformers 5 writes {@code rope_parameters}, older versions {@code
 * rope_theta} and {@code rope_scaling}.
 *
 * @param inverseFrequencies one for each pair of a head's elements
 * @param scale by which sines and cosines are multiplied
 */
public record Rope(float[] inverseFrequencies, float scale) {
  private static final String THETA = "rope_theta";
  private static final String PARAMETERS = "rope_parameters";
  private static final String SCALING = "rope_scaling";
  private static final String TYPE = "rope_type";
  private static final String ORIGINAL = "original_max_position_embeddings";
  private static final String PARTIAL = "partial_rotary_factor";
  private static final double USUAL_THETA = 10_000;

  /** Keys that transformers ignores in objects of a type that does not use them. */
  private static final Set<String> WITHOUT_EFFECT = Set.of("finetuned", ORIGINAL);

  /**
   * Reads the keys of config.json.
   *
   * @param context of the model
   * @throws IllegalArgumentException if they are of a kind that is not implemented, or wrong
   */
  static Rope read(ConfigFile config, int headDim, int context) {
    config.requireOnly(PARTIAL, 1.0);
    if (config.has(PARAMETERS) && config.has(SCALING)) {
      throw config.wrong(SCALING, "give it or " + PARAMETERS + ", not both");
    }
    Optional<ConfigFile> rope = config.object(PARAMETERS).or(() -> config.object(SCALING));
    double outer = config.positive(THETA, USUAL_THETA);
    double theta = rope.map(keys -> keys.positive(THETA, outer)).orElse(outer);
    if (config.has(THETA) && theta != outer) {
      throw config.wrong(THETA, PARAMETERS + " has another one, " + theta);
    }
    int original =
        config.has(ORIGINAL)
            ? config.count(ORIGINAL)
            : rope.map(keys -> keys.count(ORIGINAL, context)).orElse(context);
    Plain plain = new Plain(theta, headDim, original);
    return rope.map(plain::scaled).orElseGet(() -> plain.rope(plain::frequency, 1));
  }

  /** Frequencies without a scaling, of a model that was trained with {@code original} tokens. */
  private record Plain(double theta, int headDim, int original) {
    double frequency(int pair) {
      return Math.pow(theta, -2.0 * pair / headDim);
    }

    Rope rope(IntToDoubleFunction frequencies, double scale) {
      float[] result = new float[headDim / 2];
      for (int i = 0; i < result.length; i++) {
        result[i] = (float) frequencies.applyAsDouble(i);
      }
      return new Rope(result, (float) scale);
    }

    Rope scaled(ConfigFile rope) {
      rope.requireOnly(PARTIAL, 1.0);
      String type = rope.text(TYPE, rope.text("type", "default"));
      Rope scaled =
          switch (type) {
            case "default" -> rope(this::frequency, 1);
            case "linear" -> {
              double factor = rope.positive("factor");
              yield rope(pair -> frequency(pair) / factor, 1);
            }
            case "dynamic" -> {
              rope.positive("factor"); // has an effect beyond the model's context only
              yield rope(this::frequency, 1);
            }
            case "llama3" -> rope(llama3(rope), 1);
            case "yarn" -> rope(yarn(rope), yarnScale(rope));
            default ->
                throw rope.wrong(
                    rope.has(TYPE) ? TYPE : "type",
                    "this server supports only default, linear, dynamic, llama3 and yarn");
          };
      rope.refuseOthers(WITHOUT_EFFECT);
      return scaled;
    }

    /** Llama 3.1's way to longer contexts: low frequencies are divided, those between blended. */
    private IntToDoubleFunction llama3(ConfigFile rope) {
      double factor = rope.positive("factor");
      double low = rope.positive("low_freq_factor");
      double high = rope.positive("high_freq_factor");
      if (high <= low) {
        throw rope.wrong("high_freq_factor", "it must be above low_freq_factor");
      }
      return pair -> {
        double turns = original * frequency(pair) / (2 * Math.PI);
        double share = Math.min(1, Math.max(0, (turns - low) / (high - low)));
        return frequency(pair) * (share + (1 - share) / factor);
      };
    }

    /** YaRN: the share of a divided frequency rises with the number of the pair. */
    private IntToDoubleFunction yarn(ConfigFile rope) {
      double factor = rope.positive("factor");
      if (theta <= 1) {
        throw rope.wrong(THETA, "it must be above 1");
      }
      double fast = pairThatTurns(rope.positive("beta_fast", 32));
      double slow = pairThatTurns(rope.positive("beta_slow", 1));
      boolean whole = !rope.isNull("truncate") && (!rope.has("truncate") || rope.flag("truncate"));
      double low = Math.max(0, whole ? Math.floor(fast) : fast);
      double high = Math.min(headDim - 1, whole ? Math.ceil(slow) : slow);
      double width = low == high ? 0.001 : high - low;
      return pair -> {
        double share = Math.min(1, Math.max(0, (pair - low) / width));
        return frequency(pair) * (1 - share + share / factor);
      };
    }

    /** Returns the pair, or a place between two, that turns so often in the original context. */
    private double pairThatTurns(double times) {
      return headDim * Math.log(original / (times * 2 * Math.PI)) / (2 * Math.log(theta));
    }

    private static double yarnScale(ConfigFile rope) {
      double factor = rope.positive("factor");
      double mscale = rope.positive("mscale", 1);
      double ofAll = rope.positive("mscale_all_dim", 1);
      double usual =
          rope.has("mscale") && rope.has("mscale_all_dim")
              ? yarnScale(factor, mscale) / yarnScale(factor, ofAll)
              : yarnScale(factor, 1);
      return rope.positive("attention_factor", usual);
    }

    private static double yarnScale(double factor, double mscale) {
      return factor <= 1 ? 1 : 0.1 * mscale * Math.log(factor) + 1;
    }
  }
}

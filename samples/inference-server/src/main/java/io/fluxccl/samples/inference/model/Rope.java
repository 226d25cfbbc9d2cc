// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.model;

import java.util.Optional;
import java.util.Set;
import java.util.function.DoubleUnaryOperator;

/**
 * The frequencies of rotary position embeddings. transformers 5 writes {@code rope_parameters},
 * older versions {@code rope_theta} and {@code rope_scaling}.
 */
final class Rope {
  private static final String THETA = "rope_theta";
  private static final String PARAMETERS = "rope_parameters";
  private static final String SCALING = "rope_scaling";
  private static final String TYPE = "rope_type";
  private static final double USUAL_THETA = 10_000;

  private Rope() {}

  /**
   * Returns the inverse frequency of each pair of a head's elements.
   *
   * @throws IllegalArgumentException if the keys are of a kind that is not implemented, or wrong
   */
  static float[] inverseFrequencies(ConfigFile config, int headDim) {
    config.requireOnly("partial_rotary_factor", 1.0);
    if (config.has(PARAMETERS) && config.has(SCALING)) {
      throw config.wrong(SCALING, "give it or " + PARAMETERS + ", not both");
    }
    Optional<ConfigFile> rope = config.object(PARAMETERS).or(() -> config.object(SCALING));
    double outer = config.positive(THETA, USUAL_THETA);
    double theta = rope.map(keys -> keys.positive(THETA, outer)).orElse(outer);
    if (config.has(THETA) && theta != outer) {
      throw config.wrong(THETA, PARAMETERS + " has another one, " + theta);
    }
    DoubleUnaryOperator scaled = rope.map(Rope::scaling).orElse(DoubleUnaryOperator.identity());
    float[] result = new float[headDim / 2];
    for (int i = 0; i < result.length; i++) {
      result[i] = (float) scaled.applyAsDouble(Math.pow(theta, -2.0 * i / headDim));
    }
    return result;
  }

  private static DoubleUnaryOperator scaling(ConfigFile rope) {
    rope.requireOnly("partial_rotary_factor", 1.0);
    String type = rope.text(TYPE, rope.text("type", "default"));
    DoubleUnaryOperator scaling =
        switch (type) {
          case "default" -> DoubleUnaryOperator.identity();
          case "linear" -> {
            double factor = rope.positive("factor");
            yield frequency -> frequency / factor;
          }
          case "llama3" -> llama3(rope);
          default ->
              throw rope.wrong(
                  rope.has(TYPE) ? TYPE : "type",
                  "this server supports only default, linear and llama3");
        };
    rope.refuseOthers(Set.of());
    return scaling;
  }

  /** Llama 3.1's way to longer contexts: low frequencies are divided, those between blended. */
  private static DoubleUnaryOperator llama3(ConfigFile rope) {
    double factor = rope.positive("factor");
    double low = rope.positive("low_freq_factor");
    double high = rope.positive("high_freq_factor");
    double context = rope.count("original_max_position_embeddings");
    if (high <= low) {
      throw rope.wrong("high_freq_factor", "it must be above low_freq_factor");
    }
    return frequency -> {
      double turns = context * frequency / (2 * Math.PI);
      double share = Math.min(1, Math.max(0, (turns - low) / (high - low)));
      return frequency * (share + (1 - share) / factor);
    };
  }
}

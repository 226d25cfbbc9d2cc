// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.model;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.fluxccl.samples.inference.model.LlamaConfig.Extra;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Every key of config.json that changes an answer is used or refused. */
class LlamaConfigTest {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final String LLAMA_3 =
      "'factor': 8.0, 'low_freq_factor': 1.0, 'high_freq_factor': 4.0,"
          + " 'original_max_position_embeddings': 64}";

  @TempDir private Path folder;

  /** Reads the small model's config with other keys, given as JSON with single quotes. */
  private LlamaConfig read(String changes) throws IOException {
    ObjectNode config = (ObjectNode) JSON.readTree(Path.of("model/config.json").toFile());
    config.setAll((ObjectNode) json(changes));
    Files.writeString(folder.resolve("config.json"), config.toString());
    return LlamaConfig.read(folder);
  }

  private static JsonNode json(String text) throws IOException {
    return JSON.readTree(text.replace('\'', '"'));
  }

  private float[] frequencies(String changes) throws IOException {
    return read(changes).rope().inverseFrequencies();
  }

  @Test
  void shouldUseTheRopeBaseOfEitherSpelling() throws IOException {
    float[] old = frequencies("{'rope_theta': 500000.0}");
    assertThat(old[1]).isEqualTo((float) Math.pow(500_000, -2.0 / 32));
    String parameters = "'rope_parameters': {'rope_type': 'default', 'rope_theta': 500000.0}}";
    assertThat(frequencies("{'rope_theta': null, " + parameters)).isEqualTo(old);
    assertThat(frequencies("{'rope_theta': 500000, " + parameters)).isEqualTo(old);
    assertThatThrownBy(() -> read("{'rope_theta': 10000, " + parameters))
        .hasMessageContaining("rope_theta=10000; rope_parameters has another one");
  }

  @Test
  void shouldScaleFrequenciesInEitherSpelling() throws IOException {
    float[] plain = frequencies("{'rope_theta': 100000}");
    float[] linear =
        frequencies("{'rope_theta': 100000, 'rope_scaling': {'type': 'linear', 'factor': 4.0}}");
    for (int i = 0; i < plain.length; i++) {
      assertThat(linear[i]).isEqualTo(plain[i] / 4);
    }
    float[] old = frequencies("{'rope_scaling': {'rope_type': 'llama3', " + LLAMA_3 + "}");
    float[] base = frequencies("{}");
    // Below one turn in 64 tokens divided by 8, above four unchanged.
    assertThat(old[0]).isEqualTo(base[0]);
    assertThat(old[15]).isEqualTo(base[15] / 8);
    assertThat(old[3]).isBetween(base[3] / 8, base[3]);
    String parameters = "{'rope_type': 'llama3', 'rope_theta': 10000.0, " + LLAMA_3 + "}";
    assertThat(frequencies("{'rope_theta': null, 'rope_parameters': " + parameters)).isEqualTo(old);
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      quoteCharacter = '^',
      value = {
        "{'model_type': 'gemma'} | model_type=\"gemma\"; this server supports only llama, mistral",
        "{'hidden_size': null} | hidden_size is missing",
        "{'hidden_size': 0} | hidden_size=0; it must be a whole number from 1 to 16777216",
        "{'num_key_value_heads': 3} | num_key_value_heads=3; it must divide num_attention_heads=8",
        "{'head_dim': 31} | head_dim=31",
        "{'rms_norm_eps': -1} | rms_norm_eps=-1; it must be a number above 0",
        "{'is_causal': false} | is_causal=false; this server supports only true",
        "{'max_position_embeddings': 2147483647} | it must be a whole number from 1 to 16777216",
        "{'hidden_act': 'gelu'} | hidden_act=\"gelu\"; this server supports only \"silu\"",
        "{'model_type': 'mistral', 'attention_bias': true} | attention_bias=true",
        "{'model_type': 'qwen2', 'mlp_bias': true} | mlp_bias=true",
        "{'model_type': 'qwen2', 'num_key_value_heads': 'x'} | num_key_value_heads",
        "{'model_type': 'mistral', 'sliding_window': 0} | sliding_window=0; it must be a whole",
        "{'model_type': 'mistral', 'layer_types': ['full_attention']} | layer_types=",
        "{'model_type': 'qwen3', 'layer_types': ['full_attention']} | each of 4 layers must be",
        "{'num_hidden_layers': 5000} | num_hidden_layers=5000; it must be a whole number from 1",
        "{'head_dim': null, 'hidden_size': 252} | hidden_size=252; without head_dim",
        "{'head_dim': 16777216} | all heads must have at most 16777216 elements",
        "{'use_qk_norm': true} | use_qk_norm=true",
        "{'sliding_window': 16} | sliding_window=16",
        "{'pretraining_tp': 2} | pretraining_tp=2; this server supports only 1",
        "{'partial_rotary_factor': 0.5} | partial_rotary_factor=0.5",
        "{'rope_interleaved': true} | rope_interleaved=true",
        "{'quantization_config': {'bits': 4}} | quantization_config=",
        "{'rope_scaling': {'rope_type': 'longrope', 'factor': 4}} | rope_type=\"longrope\"",
        "{'rope_scaling': {'rope_type': 'yarn'}} | factor is missing",
        "{'rope_scaling': {'rope_type': 'yarn', 'factor': 4, 'beta_fast': -1}} | beta_fast=-1",
        "{'rope_theta': 1, 'rope_scaling': {'type': 'yarn', 'factor': 4}} | it must be above 1",
        "{'rope_scaling': {'type': 'dynamic'}} | factor is missing",
        "{'rope_scaling': {'type': 'linear', 'factor': 4, 'mscale': 2}} | mscale=2",
        "{'rope_scaling': {'rope_type': 'llama3', 'factor': 8.0}} | low_freq_factor is missing",
        "{'eos_token_id': 'end'} | eos_token_id=\"end\"; it must be a token or a list of tokens"
      })
  void shouldRefuseAKeyThatItDoesNotUseAndNameIt(String changes, String message) {
    assertThatThrownBy(() -> read(changes))
        .isInstanceOf(IllegalArgumentException.class)
        .hasMessageStartingWith(folder.resolve("config.json").toString())
        .hasMessageContaining(message);
  }

  @Test
  void shouldUseTheKeysOfAFamily() throws IOException {
    assertThat(read("{'attention_bias': true}").extras())
        .containsExactlyInAnyOrder(Extra.QKV_BIAS, Extra.OUT_BIAS);
    LlamaConfig mistral = read("{'model_type': 'mistral', 'sliding_window': 16}");
    assertThat(mistral.extras()).isEmpty();
    assertThat(mistral.windows()).containsExactly(16, 16, 16, 16);
    String qwen = "{'model_type': 'qwen2', 'sliding_window': 16, 'max_window_layers': 3";
    assertThat(read(qwen + "}").windows()).containsOnly(0);
    LlamaConfig qwen2 = read(qwen + ", 'use_sliding_window': true}");
    assertThat(qwen2.windows()).containsExactly(0, 0, 0, 16);
    assertThat(qwen2.extras()).containsExactly(Extra.QKV_BIAS);
    // A window of the whole context is none; without the key it has 4096 tokens.
    assertThat(read("{'model_type': 'mistral'}").windows()).containsOnly(0);
    assertThat(read("{'model_type': 'mistral', 'sliding_window': null}").windows()).containsOnly(0);
    assertThat(read("{'model_type': 'qwen3', 'head_dim': null}").headDim()).isEqualTo(128);
  }

  @ParameterizedTest
  @CsvSource({"8, 4", "9, 3", "14, 2", "32, 32", "6, 1", "12, 4"})
  void shouldGiveEachHeadOfQueriesToOneRankWithItsKeys(int heads, int kvHeads) throws IOException {
    LlamaConfig config =
        read(
            "{'head_dim': 32, 'num_attention_heads': "
                + heads
                + ", 'num_key_value_heads': "
                + kvHeads
                + "}");
    for (int nRanks = 1; nRanks <= heads; nRanks++) {
      int next = 0;
      for (int rank = 0; rank < nRanks; rank++) {
        LlamaConfig.Heads own = config.headsOf(rank, nRanks);
        assertThat(own.first()).isEqualTo(next);
        for (int i = 0; i < own.count(); i++) {
          int kvHead = (own.first() + i) / (heads / kvHeads);
          assertThat(kvHead).isEqualTo(own.firstKv() + i / own.group());
        }
        assertThat(own.count() % own.kvCount()).isZero();
        next += own.count();
      }
      assertThat(next).isEqualTo(heads);
    }
  }

  @Test
  void shouldScaleSinesOfYarn() throws IOException {
    String yarn = "{'rope_scaling': {'type': 'yarn', 'factor': 4.0, 'finetuned': true";
    assertThat(read(yarn + "}}").rope().scale()).isEqualTo((float) (0.1 * Math.log(4) + 1));
    assertThat(read(yarn + ", 'mscale': 1, 'mscale_all_dim': 1}}").rope().scale()).isEqualTo(1);
    assertThat(read(yarn + ", 'attention_factor': 1.5}}").rope().scale()).isEqualTo(1.5f);
    assertThat(read("{'original_max_position_embeddings': 64, " + yarn.substring(1) + "}}").rope())
        .usingRecursiveComparison()
        .isEqualTo(read(yarn + ", 'original_max_position_embeddings': 64}}").rope());
    float[] dynamic = frequencies("{'rope_scaling': {'type': 'dynamic', 'factor': 4.0}}");
    assertThat(dynamic).isEqualTo(frequencies("{}"));
  }

  @Test
  void shouldTakeKeysWithoutEffect() throws IOException {
    LlamaConfig plain = read("{}");
    LlamaConfig same =
        read(
            "{'sliding_window': null, 'rope_interleaved': false, 'pretraining_tp': 1,"
                + " 'transformers_version': '5.17.0', 'dtype': 'float32', 'use_cache': true, 'is_llama_config': true}");
    assertThat(same).usingRecursiveComparison().isEqualTo(plain);
  }

  @Test
  void shouldEndAtTheTokensOfTheGenerationConfig() throws IOException {
    assertThat(read("{}").ends()).containsExactly(1);
    Files.writeString(folder.resolve("generation_config.json"), "{\"eos_token_id\": [1, 350]}");
    assertThat(read("{}").ends()).containsExactlyInAnyOrder(1, 350);
    Files.writeString(folder.resolve("generation_config.json"), "{\"do_sample\": true}");
    assertThat(read("{'eos_token_id': [2, 3]}").ends()).containsExactlyInAnyOrder(2, 3);
  }

  @Test
  void shouldRefuseAFileThatIsNoConfig() throws IOException {
    assertThatThrownBy(() -> LlamaConfig.read(folder))
        .hasMessageContaining("config.json is missing");
    for (String text : new String[] {"[]", "{\"a\": 1, \"a\": 2}", "{} {}", "{"}) {
      Files.writeString(folder.resolve("config.json"), text);
      assertThatThrownBy(() -> LlamaConfig.read(folder))
          .isInstanceOf(IOException.class)
          .hasMessageContaining("config.json is no JSON");
    }
  }

  @Test
  void shouldRefuseRanksWithWidthsThatKernelsCannotTake() throws IOException {
    LlamaConfig config = read("{'intermediate_size': 508}");
    config.requireDivisible(1);
    assertThatThrownBy(() -> config.requireDivisible(2))
        .isInstanceOf(IllegalArgumentException.class)
        .hasMessageContaining("ranks=2")
        .hasMessageContaining("possible are [1]");
  }
}

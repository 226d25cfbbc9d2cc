// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.model;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
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
    return read(changes).inverseFrequencies();
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
        "{'model_type': 'mistral'} | model_type=\"mistral\"; this server supports only llama",
        "{'hidden_size': null} | hidden_size is missing",
        "{'hidden_size': 0} | hidden_size=0; it must be a whole number of 1 or more",
        "{'num_key_value_heads': 3} | num_key_value_heads=3; it must divide num_attention_heads=8",
        "{'head_dim': 31} | head_dim=31",
        "{'rms_norm_eps': -1} | rms_norm_eps=-1; it must be a number above 0",
        "{'is_causal': false} | is_causal=false; this server supports only true",
        "{'max_position_embeddings': 2147483647} | this server supports up to 16777216",
        "{'hidden_act': 'gelu'} | hidden_act=\"gelu\"; this server supports only \"silu\"",
        "{'attention_bias': true} | attention_bias=true",
        "{'mlp_bias': true} | mlp_bias=true",
        "{'sliding_window': 16} | sliding_window=16",
        "{'pretraining_tp': 2} | pretraining_tp=2; this server supports only 1",
        "{'partial_rotary_factor': 0.5} | partial_rotary_factor=0.5",
        "{'rope_interleaved': true} | rope_interleaved=true",
        "{'quantization_config': {'bits': 4}} | quantization_config=",
        "{'rope_scaling': {'rope_type': 'yarn', 'factor': 4}} | rope_type=\"yarn\"",
        "{'rope_scaling': {'type': 'dynamic', 'factor': 4}} | type=\"dynamic\"",
        "{'rope_scaling': {'type': 'linear', 'factor': 4, 'attention_factor': 2}} | attention_factor=2",
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

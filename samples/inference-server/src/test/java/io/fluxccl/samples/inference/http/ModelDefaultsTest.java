// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.http;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.catchThrowableOfType;

import io.fluxccl.samples.inference.engine.EngineStatus;
import io.fluxccl.samples.inference.engine.TextEngine;
import io.fluxccl.samples.inference.engine.TextPiece;
import io.fluxccl.samples.inference.engine.TextRequest;
import io.fluxccl.samples.inference.engine.TextRequest.Sampling;
import io.fluxccl.samples.inference.model.ChatTemplate;
import io.fluxccl.samples.inference.model.GenerationDefaults;
import java.nio.charset.StandardCharsets;
import java.util.List;
import org.junit.jupiter.api.Test;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;

/** The defaults of a request that the model's folder has. */
class ModelDefaultsTest {
  private static final TextEngine ENGINE =
      new TextEngine() {
        @Override
        public Flux<TextPiece> generate(TextRequest request) {
          return Flux.empty();
        }

        @Override
        public EngineStatus status() {
          return null;
        }

        @Override
        public GenerationDefaults defaults() {
          return new GenerationDefaults(0.6, 0.9, 20, List.of());
        }

        @Override
        public String modelName() {
          return "model";
        }

        @Override
        public Mono<Void> drain() {
          return Mono.empty();
        }
      };

  private static ApiRequest parse(String json, ChatTemplate template) {
    return ApiRequest.parse(json.getBytes(StandardCharsets.UTF_8), ENGINE, template, null);
  }

  @Test
  void shouldUseTheModelsSamplingIfTheRequestHasNone() {
    Sampling absent = parse("{\"prompt\": \"a\"}", null).texts().get(0).sampling();
    assertThat(absent.temperature()).isEqualTo(0.6f);
    assertThat(absent.topP()).isEqualTo(0.9f);
    assertThat(absent.adjustments().topK()).isEqualTo(20);
    String own = "{\"prompt\": \"a\", \"temperature\": 0, \"top_p\": 1, \"top_k\": 0}";
    Sampling asked = parse(own, null).texts().get(0).sampling();
    assertThat(asked.temperature()).isZero();
    assertThat(asked.topP()).isEqualTo(1f);
    assertThat(asked.adjustments().topK()).isZero();
  }

  @Test
  void shouldAnswer400ToMessagesThatTheTemplateRefuses() {
    ChatTemplate refusing =
        messages -> {
          throw new IllegalArgumentException("roles must alternate");
        };
    String chat = "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}";
    ApiError error = catchThrowableOfType(ApiError.class, () -> parse(chat, refusing));
    assertThat(error.status).isEqualTo(400);
    assertThat(error).hasMessageContaining("roles must alternate");
  }
}

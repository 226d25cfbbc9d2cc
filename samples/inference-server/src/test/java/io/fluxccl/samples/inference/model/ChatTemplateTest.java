// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.model;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.samples.inference.model.ChatTemplate.Message;
import java.util.List;
import java.util.Set;
import org.junit.jupiter.api.Test;

class ChatTemplateTest {
  private static final List<Message> CHAT =
      List.of(new Message("system", "Be brief."), new Message("user", " Who are you?\n"));

  @Test
  void shouldWriteTheHeadersOfLlama3() {
    ChatTemplate template = ChatTemplate.of(Set.of("a", "<|start_header_id|>")::contains);

    assertThat(template.render(CHAT))
        .isEqualTo(
            "<|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
                + "<|start_header_id|>user<|end_header_id|>\n\nWho are you?<|eot_id|>"
                + "<|start_header_id|>assistant<|end_header_id|>\n\n");
  }

  @Test
  void shouldJoinTheContentsForOtherModels() {
    ChatTemplate template = ChatTemplate.of(Set.of("a")::contains);

    assertThat(template.render(CHAT)).isEqualTo("Be brief.\n Who are you?\n");
  }
}

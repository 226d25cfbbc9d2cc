// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.jinja;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** Compares with what Jinja for Python wrote: {@code train/templates.py}. */
class TemplateTest {
  private static final Path FOLDER = Path.of("src/test/resources/chat-templates");

  private static List<?> list(String file) throws IOException {
    return new ObjectMapper().readValue(FOLDER.resolve(file).toFile(), List.class);
  }

  private static Map<?, ?> families() throws IOException {
    return new ObjectMapper().readValue(FOLDER.resolve("families.json").toFile(), Map.class);
  }

  static Stream<String> names() throws IOException {
    return ((Map<?, ?>) families().get("expected")).keySet().stream().map(String.class::cast);
  }

  /** Returns null if the template raises an error, as the fixtures do. */
  private static String render(String template, Map<String, Object> variables) {
    try {
      return Template.compile(template).render(variables);
    } catch (TemplateException e) {
      return null;
    }
  }

  @ParameterizedTest
  @MethodSource("names")
  void shouldRenderTheTemplatesOfKnownFamiliesAsJinjaDoes(String name) throws IOException {
    String template = Files.readString(FOLDER.resolve(name + ".jinja"));
    List<?> chats = (List<?>) families().get("chats");
    List<?> expected = (List<?>) ((Map<?, ?>) families().get("expected")).get(name);
    Map<String, Object> variables = new HashMap<>();
    variables.put("tools", null);
    variables.put("documents", null);
    variables.put("add_generation_prompt", true);
    variables.put("bos_token", "<s>");
    variables.put("eos_token", "</s>");
    Template.Function now =
        arguments -> arguments.remove("0").equals("%d %b %Y") ? "28 Nov 2026" : "";
    variables.put("strftime_now", now);
    for (int i = 0; i < chats.size(); i++) {
      variables.put("messages", chats.get(i));
      assertThat(render(template, variables)).as("chat %d", i).isEqualTo(expected.get(i));
    }
    assertThat(names()).hasSize(12);
  }

  @Test
  void shouldFollowTheRulesOfJinja() throws IOException {
    List<?> rules = list("rules.json");
    List<?> expected = list("rules-expected.json");
    for (int i = 0; i < rules.size(); i++) {
      String rule = (String) rules.get(i);
      assertThat(render(rule, Map.of())).as(rule).isEqualTo(expected.get(i));
    }
    assertThat(expected).hasSameSizeAs(rules).hasSizeGreaterThan(50);
  }

  @Test
  void shouldNameTheLineOfAnError() {
    Map<String, String> errors =
        Map.of(
            "a\n{% bold %}", "line 2: this server does not know the tag 'bold'",
            "{{ 1 }}\n\n{{ x | nope }}", "line 3: this server does not know the filter 'nope'",
            "\n{% if x is nope %}{% endif %}", "line 2: this server does not know the test 'nope'",
            "{% for a in [1] %}\n{{ b.c }}{% endfor %}", "line 2: 'b' is undefined",
            "{% if true %}\na", "line 2: the tag 'endif' is missing",
            "{{ raise_exception('Not so!') }}", "Not so!",
            "{{ 'a' | trim(sides=2) }}",
                "line 1: the filter trim does not support the argument [sides]",
            "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
                "its macros call each other without end");
    errors.forEach(
        (template, message) ->
            assertThatThrownBy(() -> Template.compile(template).render(Map.of()))
                .as(template)
                .isInstanceOf(TemplateException.class)
                .hasMessage(message));
  }
}

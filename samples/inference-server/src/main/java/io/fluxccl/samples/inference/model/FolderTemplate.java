// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.model;

import com.fasterxml.jackson.databind.JsonNode;
import io.fluxccl.samples.inference.jinja.Template;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.ZonedDateTime;
import java.time.format.DateTimeFormatter;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** The Jinja template of a model's folder, with the variables that transformers gives it. */
final class FolderTemplate implements ChatTemplate {
  private static final String CONFIG = "tokenizer_config.json";
  private static final String PROBE = "Hello";
  private static final Pattern DATE = Pattern.compile("%(-?[a-zA-Z%])");

  /** Python's letters of a date, and Java's. */
  private static final Map<String, String> DATES =
      Map.ofEntries(
          Map.entry("d", "dd"),
          Map.entry("-d", "d"),
          Map.entry("m", "MM"),
          Map.entry("-m", "M"),
          Map.entry("b", "MMM"),
          Map.entry("B", "MMMM"),
          Map.entry("y", "uu"),
          Map.entry("Y", "uuuu"),
          Map.entry("a", "EEE"),
          Map.entry("A", "EEEE"),
          Map.entry("j", "DDD"),
          Map.entry("H", "HH"),
          Map.entry("I", "hh"),
          Map.entry("M", "mm"),
          Map.entry("S", "ss"),
          Map.entry("p", "a"),
          Map.entry("%", "'%'"));

  private final Template template;
  private final Map<String, Object> variables;
  private final Tokenizer tokenizer;

  /** Whether the template needs a list of parts as content, rather than a text. */
  private final boolean needsParts;

  private FolderTemplate(
      Template template, Map<String, Object> variables, Tokenizer tokenizer, boolean needsParts) {
    this.template = template;
    this.variables = variables;
    this.tokenizer = tokenizer;
    this.needsParts = needsParts;
  }

  static ChatTemplate read(Path folder, Tokenizer tokenizer) throws IOException {
    Path own = folder.resolve("chat_template.jinja");
    JsonNode config = FolderFile.optional(folder.resolve(CONFIG));
    boolean hasOwn = FolderFile.exists(own);
    String name = hasOwn ? own.toString() : folder.resolve(CONFIG) + ": chat_template";
    String source =
        hasOwn
            ? new String(FolderFile.read(own, ""), StandardCharsets.UTF_8)
            : source(config.path("chat_template"), name);
    if (source == null) {
      return messages -> {
        throw new IllegalArgumentException("the model's folder has none; use /v1/completions");
      };
    }
    Map<String, Object> variables = new HashMap<>();
    addTokens(FolderFile.optional(folder.resolve("special_tokens_map.json")), variables);
    addTokens(config, variables);
    try {
      Template template = Template.compile(source);
      FolderTemplate texts = new FolderTemplate(template, variables, tokenizer, false);
      FolderTemplate parts = new FolderTemplate(template, variables, tokenizer, true);
      if (texts.rendersProbe()) {
        return texts;
      } else if (parts.rendersProbe()) {
        return parts;
      }
      throw new IllegalArgumentException("it leaves out the content of a user's message");
    } catch (IllegalArgumentException e) {
      throw new IOException(
          name + " can't be rendered: " + e.getMessage() + "; mend it, or remove it", e);
    }
  }

  /** Returns a template's text, or the default one of a list of named templates; else null. */
  private static String source(JsonNode json, String name) throws IOException {
    if (json.isArray()) {
      for (JsonNode each : json) {
        if (each.path("name").asText().equals("default")) {
          return source(each.path("template"), name);
        }
      }
      throw new IOException(name + " has no template with the name 'default'; add one");
    }
    if (!json.isTextual() && !json.isMissingNode() && !json.isNull()) {
      throw new IOException(name + " must be a text or a list of named templates");
    }
    return json.isTextual() ? json.textValue() : null;
  }

  private static void addTokens(JsonNode json, Map<String, Object> variables) {
    for (Map.Entry<String, JsonNode> each : json.properties()) {
      JsonNode value = each.getValue();
      JsonNode token = value.isObject() ? value.path("content") : value;
      if (each.getKey().endsWith("_token") && token.isTextual()) {
        variables.put(each.getKey(), token.textValue());
      }
    }
  }

  private boolean rendersProbe() {
    return render(List.of(new Message("user", PROBE))).contains(PROBE);
  }

  @Override
  public String render(List<Message> messages) {
    List<String> quoted = new ArrayList<>();
    char mark = unused(messages);
    List<Object> all = new ArrayList<>();
    for (Message message : messages) {
      String content =
          tokenizer.replaceSpecial(
              message.content(),
              special -> {
                quoted.add(special);
                return "" + mark + (quoted.size() - 1) + mark;
              });
      Map<String, Object> each = new LinkedHashMap<>();
      each.put("role", message.role());
      each.put("content", needsParts ? List.of(Map.of("type", "text", "text", content)) : content);
      all.add(each);
    }
    Map<String, Object> context = new HashMap<>(variables);
    context.put("messages", all);
    context.put("tools", null);
    context.put("documents", null);
    context.put("add_generation_prompt", true);
    Template.Function now = arguments -> now((String) arguments.remove("0"), ZonedDateTime.now());
    context.put("strftime_now", now);
    String text = tokenizer.hide(template.render(context));
    return tokenizer.asChat(
        Pattern.compile(mark + "(\\d+)" + mark)
            .matcher(text)
            .replaceAll(
                found -> Matcher.quoteReplacement(quoted.get(Integer.parseInt(found.group(1))))));
  }

  /** Returns a character that no message has. */
  private static char unused(List<Message> messages) {
    char mark = '\ue100';
    for (int i = 0; i < messages.size(); i++) {
      if (messages.get(i).content().indexOf(mark) >= 0) {
        mark++;
        i = -1;
      }
    }
    return mark;
  }

  /** Returns a time as Python's {@code strftime} writes it. */
  static String now(String format, ZonedDateTime time) {
    return DATE.matcher(format)
        .replaceAll(
            letter -> {
              String pattern = DATES.get(letter.group(1));
              if (pattern == null) {
                throw new IllegalArgumentException("strftime_now does not know " + letter.group());
              }
              DateTimeFormatter java = DateTimeFormatter.ofPattern(pattern, Locale.ENGLISH);
              return Matcher.quoteReplacement(java.format(time));
            });
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import io.fluxccl.Text;
import java.io.IOException;
import java.io.StringWriter;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.Callable;
import picocli.CommandLine.Command;
import picocli.CommandLine.Option;

/** {@code fluxccl info}. */
@Command(
    name = "info",
    description = "Show the version, the machine, devices, transports and algorithms.",
    sortOptions = false)
final class InfoCommand implements Callable<Integer> {
  private final CliContext context;

  @Option(names = "--json", description = "Write JSON to standard output.")
  private boolean json;

  InfoCommand(CliContext context) {
    this.context = context;
  }

  @Override
  public Integer call() throws IOException {
    List<SystemReport> report = SystemReport.of(context);
    context.out().println(json ? json(report) : text(report));
    return ExitCode.OK;
  }

  private static String text(List<SystemReport> report) {
    StringBuilder text = new StringBuilder();
    for (SystemReport section : report) {
      text.append(section.title()).append('\n');
      List<String> lines = section.named() == null ? section.lines() : lines(section.named());
      (lines.isEmpty() ? List.of(section.none()) : lines)
          .forEach(line -> text.append("  ").append(line).append('\n'));
    }
    return text.toString().stripTrailing();
  }

  private static List<String> lines(Map<String, String> entries) {
    return entries.entrySet().stream()
        .map(entry -> Text.of("%-12s %s", entry.getKey(), entry.getValue()))
        .toList();
  }

  private static String json(List<SystemReport> report) throws IOException {
    StringWriter text = new StringWriter();
    try (JsonGenerator json = new JsonFactory().createGenerator(text).useDefaultPrettyPrinter()) {
      json.writeStartObject();
      for (SystemReport section : report) {
        json.writeFieldName(section.title().toLowerCase(Locale.ROOT).replace(' ', '_'));
        if (section.named() == null) {
          json.writeArray(section.lines().toArray(String[]::new), 0, section.lines().size());
        } else {
          json.writeStartObject();
          for (Map.Entry<String, String> entry : section.named().entrySet()) {
            json.writeStringField(entry.getKey(), entry.getValue());
          }
          json.writeEndObject();
        }
      }
      json.writeEndObject();
    }
    return text.toString();
  }
}

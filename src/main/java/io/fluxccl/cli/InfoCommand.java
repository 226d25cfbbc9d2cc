package io.fluxccl.cli;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import java.io.IOException;
import java.io.StringWriter;
import java.util.List;
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
    SystemReport report = SystemReport.of(context);
    context.out().println(json ? json(report) : text(report));
    return ExitCode.OK;
  }

  private static String text(SystemReport report) {
    StringBuilder text = new StringBuilder();
    section(text, "system", lines(report.system()), "unknown");
    section(text, "GPU support", lines(report.gpuSupport()), "not in this build");
    section(text, "devices", report.devices(), "none");
    section(text, "transports", lines(report.transports()), "none");
    section(text, "algorithms", report.algorithms(), "none in this build");
    section(text, "environment", lines(report.environment()), "no FLUXCCL_ variable is set");
    return text.toString().stripTrailing();
  }

  private static List<String> lines(Map<String, String> entries) {
    return entries.entrySet().stream()
        .map(entry -> "%-12s %s".formatted(entry.getKey(), entry.getValue()))
        .toList();
  }

  private static void section(StringBuilder text, String title, List<String> lines, String none) {
    text.append(title).append('\n');
    (lines.isEmpty() ? List.of(none) : lines)
        .forEach(line -> text.append("  ").append(line).append('\n'));
  }

  private static String json(SystemReport report) throws IOException {
    StringWriter text = new StringWriter();
    try (JsonGenerator json = new JsonFactory().createGenerator(text).useDefaultPrettyPrinter()) {
      json.writeStartObject();
      object(json, "system", report.system());
      object(json, "gpu_support", report.gpuSupport());
      array(json, "devices", report.devices());
      object(json, "transports", report.transports());
      array(json, "algorithms", report.algorithms());
      object(json, "environment", report.environment());
      json.writeEndObject();
    }
    return text.toString();
  }

  private static void object(JsonGenerator json, String name, Map<String, String> entries)
      throws IOException {
    json.writeObjectFieldStart(name);
    for (Map.Entry<String, String> entry : entries.entrySet()) {
      json.writeStringField(entry.getKey(), entry.getValue());
    }
    json.writeEndObject();
  }

  private static void array(JsonGenerator json, String name, List<String> entries)
      throws IOException {
    json.writeFieldName(name);
    json.writeArray(entries.toArray(String[]::new), 0, entries.size());
  }
}

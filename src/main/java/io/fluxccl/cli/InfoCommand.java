package io.fluxccl.cli;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.core.util.DefaultPrettyPrinter;
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

  @Option(names = "--json", description = "As JSON, to standard output.")
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
    section(text, "system", report.system(), "unknown");
    section(text, "GPU support", report.gpuSupport(), "not in this build");
    list(text, "devices", report.devices(), "none");
    section(text, "transports", report.transports(), "none");
    list(text, "algorithms", report.algorithms(), "none in this build");
    section(text, "environment", report.environment(), "no FLUXCCL_ variable is set");
    return text.toString().stripTrailing();
  }

  private static void section(
      StringBuilder text, String title, Map<String, String> entries, String none) {
    text.append(title).append('\n');
    if (entries.isEmpty()) {
      text.append("  ").append(none).append('\n');
    }
    entries.forEach((name, value) -> text.append(String.format("  %-12s %s%n", name, value)));
  }

  private static void list(StringBuilder text, String title, List<String> entries, String none) {
    text.append(title).append('\n');
    (entries.isEmpty() ? List.of(none) : entries)
        .forEach(entry -> text.append("  ").append(entry).append('\n'));
  }

  private static String json(SystemReport report) throws IOException {
    StringWriter text = new StringWriter();
    try (JsonGenerator json = new JsonFactory().createGenerator(text)) {
      json.setPrettyPrinter(new DefaultPrettyPrinter());
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
    json.writeArrayFieldStart(name);
    for (String entry : entries) {
      json.writeString(entry);
    }
    json.writeEndArray();
  }
}

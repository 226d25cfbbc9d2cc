// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.benchmarks;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.core.util.DefaultPrettyPrinter;
import io.fluxccl.device.cuda.CudaDriver;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintWriter;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.TimeUnit;
import picocli.CommandLine;
import picocli.CommandLine.Command;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Option;
import picocli.CommandLine.Parameters;
import picocli.CommandLine.Spec;

/**
 * Measures what this machine's GPUs reach through FluxCCL, as {@code bin/gpu-figures} of the bundle
 * does: each section in a process of its own, stopped at a time limit.
 */
@Command(
    name = "gpu-figures",
    sortOptions = false,
    mixinStandardHelpOptions = true,
    description = "Measure what FluxCCL reaches on this machine's GPUs.")
public final class GpuFigures implements Callable<Integer> {
  /** Begins a line of output that is a figure. */
  static final String FIGURE = "figure\t";

  private static final List<FigureSection> SECTIONS =
      List.of(
          new FifoFigures(),
          new HostFigures(),
          new ChannelFigures(),
          new BandwidthFigures(),
          new CollectiveFigures(),
          new TypeFigures(),
          new OneJvmFigures(),
          new LatencyFigures());

  @Parameters(paramLabel = "SECTION", description = "Only these; all when none is given.")
  private List<String> chosen = List.of();

  @Option(names = "--list", description = "Print the sections and end.")
  private boolean list;

  @Option(names = "--limit", description = "Seconds for each section (default: its own).")
  private Integer limit;

  @Option(names = "--json", paramLabel = "FILE", description = "Also as JSON.")
  private Path json;

  @Option(names = "--here", hidden = true)
  private boolean here;

  @Spec private CommandSpec spec;

  /** Ends with 0 when all sections were measured, 1 when one failed, 2 for wrong arguments. */
  public static void main(String[] args) {
    System.exit(new CommandLine(new GpuFigures()).execute(args));
  }

  @Override
  public Integer call() throws Exception {
    PrintWriter out = spec.commandLine().getOut();
    List<FigureSection> sections =
        SECTIONS.stream().filter(s -> chosen.isEmpty() || chosen.contains(s.name())).toList();
    for (String name : chosen) {
      if (SECTIONS.stream().noneMatch(section -> section.name().equals(name))) {
        throw new CommandLine.ParameterException(
            spec.commandLine(), "there is no section " + name + "; see --list");
      }
    }
    if (list) {
      for (FigureSection section : sections) {
        out.printf("%-12s %d GPU(s)  %s%n", section.name(), section.gpus(), section.description());
      }
      out.flush();
      return 0;
    }
    if (here) {
      for (FigureSection section : sections) {
        section.measure(
            new Figures(section.name(), figure -> System.out.println(FIGURE + figure.line())));
      }
      return 0;
    }
    boolean failed = false;
    List<Figure> figures = new ArrayList<>();
    for (FigureSection section : sections) {
      failed |= !measure(section, figures, out);
    }
    if (json != null) {
      writeJson(figures);
    }
    return failed ? 1 : 0;
  }

  private boolean measure(FigureSection section, List<Figure> figures, PrintWriter out)
      throws IOException, InterruptedException {
    if (CudaDriver.count() < section.gpus()) {
      String why =
          CudaDriver.unavailableBecause()
              .orElse("needs " + section.gpus() + " GPUs, there are " + CudaDriver.count());
      tell(
          new Figure(section.name(), "(skipped)", Double.NaN, "", "", why.replace('\t', ' ')),
          figures,
          out);
      return true;
    }
    List<String> command = new ArrayList<>();
    command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
    command.addAll(ManagementFactory.getRuntimeMXBean().getInputArguments());
    command.add("-cp");
    command.add(System.getProperty("java.class.path"));
    command.addAll(List.of(GpuFigures.class.getName(), "--here", section.name()));
    Process process =
        new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
    Thread reader =
        new Thread(
            () -> {
              try (BufferedReader lines =
                  new BufferedReader(
                      new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8))) {
                for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                  if (line.startsWith(FIGURE)) {
                    tell(Figure.parse(line.substring(FIGURE.length())), figures, out);
                  } else {
                    System.err.println(line);
                  }
                }
              } catch (IOException e) {
                System.err.println(e);
              }
            },
            "figures-output");
    reader.start();
    int seconds = limit == null ? section.limit() : limit;
    boolean ended = process.waitFor(seconds, TimeUnit.SECONDS);
    process.descendants().forEach(ProcessHandle::destroyForcibly);
    process.destroyForcibly();
    reader.join();
    if (!ended || process.exitValue() != 0) {
      String why =
          ended
              ? "ended with exit code " + process.exitValue()
              : "stopped after " + seconds + " s, see --limit";
      tell(
          new Figure(section.name(), "(the section)", Double.NaN, "", "", "FAILED: " + why),
          figures,
          out);
      return false;
    }
    return true;
  }

  private static synchronized void tell(Figure figure, List<Figure> figures, PrintWriter out) {
    figures.add(figure);
    out.println(figure.row());
    out.flush();
  }

  private void writeJson(List<Figure> figures) throws IOException {
    try (JsonGenerator generator =
        new JsonFactory().createGenerator(Files.newBufferedWriter(json))) {
      generator.setPrettyPrinter(new DefaultPrettyPrinter());
      generator.writeStartArray();
      for (Figure figure : figures) {
        figure.write(generator);
      }
      generator.writeEndArray();
    }
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import io.fluxccl.InvalidUsage;
import io.fluxccl.Text;
import io.fluxccl.benchmarks.Bench;
import io.fluxccl.benchmarks.Row;
import io.fluxccl.bootstrap.RankEnvironment;
import io.fluxccl.device.cuda.CudaDriver;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.LocalDate;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import picocli.CommandLine;
import picocli.CommandLine.Command;
import picocli.CommandLine.Option;
import picocli.CommandLine.Parameters;

/**
 * {@code fluxccl bench ID}: starts the processes of benchmarks, with a time limit for each
 * benchmark, and prints their rows; or, if a launcher has started this process, is one of them.
 */
@Command(sortOptions = false)
final class BenchCommand implements Callable<Integer> {
  /** Begins a line of output that is a row. */
  private static final String ROW = "row\t";

  private static final Pattern MODEL = Pattern.compile("model name\\s*: (.*)");

  private final CliContext context;
  private final List<Bench> benches;

  @Option(names = "--ranks", paramLabel = "N", description = "Processes (default: its own number).")
  private Integer ranks;

  @Option(
      names = "--limit",
      paramLabel = "SECONDS",
      description = "Stop each benchmark after this time (default: its own limit).")
  private Integer limit;

  @Option(
      names = "--json",
      paramLabel = "FILE",
      description = "Write the rows here, too, a line each, as benchmarks/data has them.")
  private Optional<Path> json = Optional.empty();

  @Option(names = "--rows", hidden = true)
  private boolean marked;

  @Parameters(
      paramLabel = "ARGUMENT",
      description = "Of the benchmark; of 'gpu': the benchmarks to run.")
  private List<String> arguments = new ArrayList<>();

  private BenchCommand(CliContext context, List<Bench> benches) {
    this.context = context;
    this.benches = benches;
  }

  /** Returns the command that runs some benchmarks. */
  static CommandLine commandLine(CliContext context, List<Bench> benches, String what) {
    CommandLine command = new CommandLine(new BenchCommand(context, benches));
    command.getCommandSpec().usageMessage().description(what);
    // All arguments after the first, options too, belong to the benchmark.
    return command.setStopAtPositional(true);
  }

  @Override
  public Integer call() throws Exception {
    RankEnvironment environment = RankEnvironment.from(context.environment());
    List<Bench> chosen = benches;
    if (benches.size() > 1 && !arguments.isEmpty()) {
      chosen = arguments.stream().map(this::named).toList();
      arguments = List.of();
    }
    if (environment.launched()) {
      for (Bench bench : chosen) {
        bench.run().run(new Bench.Rows(bench.id(), row -> print(row, environment)), arguments);
      }
      return ExitCode.OK;
    }
    Optional<ResultFile> file = json.map(path -> new ResultFile("json", path));
    file.ifPresent(ResultFile::requireWritable);
    List<Row> rows = new ArrayList<>();
    boolean failed = false;
    for (Bench bench : chosen) {
      failed |= !start(bench, rows);
      String text = rows.stream().map(Row::toJson).collect(Collectors.joining("\n", "", "\n"));
      file.ifPresent(to -> to.write(text));
    }
    return failed ? ExitCode.FAILURE : ExitCode.OK;
  }

  private Bench named(String id) {
    return benches.stream()
        .filter(bench -> bench.id().equals(id))
        .findFirst()
        .orElseThrow(() -> new InvalidUsage("there is no benchmark " + id + "; see --list"));
  }

  private void print(Row row, RankEnvironment environment) {
    if (environment.rank() == 0) {
      context.out().println(marked ? ROW + row.toJson() : row.toLine());
      context.out().flush();
    }
  }

  /** Runs a benchmark; returns whether it has ended well, or was left out. */
  private boolean start(Bench bench, List<Row> rows) throws InterruptedException {
    if (CudaDriver.count() < bench.gpus()) {
      context
          .out()
          .println(
              Text.of(
                  "%-16s skipped: it needs %d GPUs, there are %d. %s",
                  bench.id(),
                  bench.gpus(),
                  CudaDriver.count(),
                  CudaDriver.unavailableBecause().orElse("")));
      return true;
    }
    List<String> command = PerfCommand.javaCommand(context.mainClass());
    command.addAll(List.of(bench.id(), "--verbose", "--rows"));
    command.addAll(arguments);
    int seconds = limit == null ? bench.seconds() : limit;
    AtomicBoolean stopped = new AtomicBoolean();
    String complete = arguments.isEmpty() ? "" : " " + String.join(" ", arguments);
    int code;
    try (RankLauncher processes =
        RankLauncher.start(
            command,
            ranks == null ? bench.ranks() : ranks,
            0,
            RankLauncher.TERMINATION_GRACE,
            new RowSink(bench.id() + complete, rows))) {
      CompletableFuture.delayedExecutor(seconds, TimeUnit.SECONDS)
          .execute(
              () -> {
                stopped.set(true);
                processes.terminate(RankLauncher.TERMINATION_GRACE);
              });
      code = processes.await(RankLauncher.GRACE);
      if (code == ExitCode.OK) {
        return true;
      }
    }
    String why =
        stopped.get() ? "stopped after " + seconds + " s, see --limit" : "exit code " + code;
    context.out().println(bench.id() + " FAILED: " + why);
    return false;
  }

  /** Takes what the processes print: rows, and other lines, which go to stderr. */
  private final class RowSink implements LineForwarder.Sink {
    private final String command;
    private final List<Row> rows;

    RowSink(String command, List<Row> rows) {
      this.command = command;
      this.rows = rows;
    }

    @Override
    public synchronized void line(int rank, boolean error, byte[] line, End end) {
      String text = new String(line, StandardCharsets.UTF_8);
      if (error || !text.startsWith(ROW)) {
        context.err().println("[" + rank + "] " + text);
        return;
      }
      Row row = Row.parse(text.substring(ROW.length()));
      context.out().println(row.toLine());
      rows.add(
          row.with("machine", machine())
              .with("date", LocalDate.now(ZoneOffset.UTC).toString())
              .with("command", "`" + BenchMain.PROGRAM + " " + command + "`"));
    }

    @Override
    public void notice(String line) {
      context.err().println(line);
    }
  }

  private static String machine() {
    String model = " cores";
    try {
      Matcher name = MODEL.matcher(Files.readString(Path.of("/proc/cpuinfo")));
      model = name.find() ? " x " + name.group(1) : model;
    } catch (IOException e) {
      // no Linux
    }
    String cores = Runtime.getRuntime().availableProcessors() + model;
    String system = System.getProperty("os.name") + " " + System.getProperty("os.version");
    String java = "Java " + System.getProperty("java.version");
    Stream<String> rest = Stream.of(cores, system, java);
    return Stream.concat(SystemReport.gpus().stream(), rest).collect(Collectors.joining(", "));
  }
}

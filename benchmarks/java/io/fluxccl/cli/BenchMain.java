// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import io.fluxccl.Text;
import io.fluxccl.benchmarks.Bench;
import io.fluxccl.benchmarks.Results;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.function.Supplier;
import java.util.stream.Stream;
import picocli.CommandLine;
import picocli.CommandLine.Model.CommandSpec;

/**
 * The entry point of {@code fluxccl bench}: benchmarks, a soak, and {@code perf} beside NCCL. Part
 * of a checkout and of the bundle.
 */
public final class BenchMain {
  static final String PROGRAM = "fluxccl bench";

  private BenchMain() {}

  /** Runs a command and exits with its code, as {@link Main}. */
  public static void main(String[] args) {
    RootCommand.start(PROGRAM, BenchMain::commands, new GroupBackend(), BenchMain.class, args);
  }

  static Map<String, Supplier<CommandLine>> commands(CliContext context) {
    Map<String, Supplier<CommandLine>> commands = new LinkedHashMap<>();
    commands.put("perf", () -> PerfCommand.commandLine(besideNccl(context)));
    commands.put("soak", () -> new CommandLine(new SoakCommand(context)));
    List<Bench> onGpus = benches().filter(bench -> bench.gpus() > 0).toList();
    String all = "All benchmarks on GPUs, or those that are named.";
    commands.put("gpu", () -> BenchCommand.commandLine(context, onGpus, all));
    benches()
        .forEach(
            bench ->
                commands.put(
                    bench.id(),
                    () -> BenchCommand.commandLine(context, List.of(bench), bench.what())));
    String list = "List the benchmarks, with the GPUs and processes that each needs.";
    commands.put("--list", () -> commandLine(list, () -> list(context.out())));
    String write = "Make benchmarks/RESULTS.md and README.md's table of benchmarks/data here.";
    commands.put("--write-results", () -> commandLine(write, BenchMain::writeResults));
    return commands;
  }

  static Stream<Bench> benches() {
    return Stream.concat(Bench.ALL.stream(), PerfBenches.ALL.stream());
  }

  /** Returns a context whose ranks measure NCCL, too. */
  static CliContext besideNccl(CliContext context) {
    GroupBackend backend =
        new GroupBackend(
            (communicator, buffers, limit) ->
                new NcclPeer(communicator, buffers, System.getenv(), limit));
    return new CliContext(
        backend, BenchMain.class.getName(), context.environment(), context.out(), context.err());
  }

  /** Returns a command without options. */
  private static CommandLine commandLine(String what, Callable<Integer> task) {
    CommandSpec spec = CommandSpec.wrapWithoutInspection(task);
    spec.usageMessage().description(what);
    return new CommandLine(spec);
  }

  private static int list(PrintStream out) {
    String form = "%-16s %d GPUs, %d processes: %s";
    benches().forEach(b -> out.println(Text.of(form, b.id(), b.gpus(), b.ranks(), b.what())));
    return ExitCode.OK;
  }

  private static int writeResults() throws IOException {
    Results.of(Path.of("")).write();
    return ExitCode.OK;
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import io.fluxccl.InvalidUsage;
import io.fluxccl.bootstrap.RankEnvironment;
import io.fluxccl.device.host.SegmentDirectory;
import io.fluxccl.settings.Settings;
import java.io.IOException;
import java.io.StringWriter;
import java.io.UncheckedIOException;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.Callable;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import picocli.CommandLine.Command;
import picocli.CommandLine.Mixin;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Option;
import picocli.CommandLine.Spec;

/**
 * {@code fluxccl bench soak}: random collectives for a long time, each result checked, in a job
 * whose ranks may be killed and replaced. This process starts the ranks and adds up what they
 * report; or it is one of the ranks.
 */
@Command(
    name = "soak",
    sortOptions = false,
    description = {
      "Burn a machine in: run random collectives, check every result, and count what leaks.",
      "With --restart, dead ranks are replaced and the job recovers. Exit code 0 only if nothing"
          + " was wrong or has leaked."
    })
final class SoakCommand implements Callable<Integer> {
  private static final int PROGRESS_SECONDS = 10;

  private final CliContext context;

  @Spec private CommandSpec spec;

  @Option(names = "--ranks", paramLabel = "N", description = "Start N ranks as processes.")
  private int ranks;

  @Option(
      names = "--seconds",
      paramLabel = "S",
      defaultValue = "60",
      description = "The duration. Default ${DEFAULT-VALUE}.")
  private int seconds;

  @Mixin private final CollectiveCommandOptions choices = new CollectiveCommandOptions();

  @Option(
      names = "--max-bytes",
      paramLabel = "SIZE",
      defaultValue = "67108864",
      description = "The largest buffer in bytes. Default ${DEFAULT-VALUE}.")
  private long maxBytes;

  @Option(names = "--restart", description = "Replace ranks that die, whatever the cause.")
  private boolean restart;

  @Option(
      names = "--kill-every",
      paramLabel = "S",
      description = {
        "Kill a random rank every S seconds; of three ranks or more, sometimes two at once, or a"
            + " second one within 2 s, while the job recovers. Needs --restart."
      })
  private int killEverySeconds;

  @Option(
      names = "--seed",
      paramLabel = "N",
      defaultValue = "1",
      description = "Of the random choices. Default ${DEFAULT-VALUE}.")
  private long seed;

  @Option(
      names = "--wrap",
      paramLabel = "COMMAND",
      description =
          "Start each rank as COMMAND RANK'S-COMMAND; FLUXCCL_RANK is in its environment.")
  private Optional<Path> wrap = Optional.empty();

  @Option(names = "--json", paramLabel = "FILE", description = "Write the result here, too.")
  private Optional<Path> json = Optional.empty();

  @Option(names = "--until", hidden = true)
  private long untilMillis;

  SoakCommand(CliContext context) {
    this.context = context;
  }

  @Override
  public Integer call() throws InterruptedException {
    if (seconds < 1 || maxBytes < 64 || killEverySeconds < 0) {
      throw new InvalidUsage("seconds, max-bytes (64 or more) and kill-every must be positive");
    }
    if (RankEnvironment.from(context.environment()).launched()) {
      return runRank();
    }
    if (ranks < 1) {
      throw new InvalidUsage("give --ranks N, or start the ranks with mpirun, srun or torchrun");
    }
    if (killEverySeconds > 0 && !restart) {
      throw new InvalidUsage("kill-every=" + killEverySeconds + " needs --restart");
    }
    return startRanks();
  }

  private int runRank() throws InterruptedException {
    PerfBackend.RankOptions options =
        new PerfBackend.RankOptions(
            choices.joining(), choices.timeout(Settings.ofProcess()), true, PerfMemory.OWN);
    long until =
        untilMillis > 0
            ? untilMillis
            : System.currentTimeMillis() + TimeUnit.SECONDS.toMillis(seconds);
    SoakRank rank = new SoakRank(options, maxBytes, seed, until, context.out());
    return rank.run() == 0 ? ExitCode.OK : ExitCode.FAILURE;
  }

  // ---- the process that starts the ranks ----

  private int startRanks() throws InterruptedException {
    Optional<ResultFile> file = json.map(path -> new ResultFile("json", path));
    file.ifPresent(ResultFile::requireWritable);
    List<String> command = PerfCommand.javaCommand(context.mainClass());
    wrap.ifPresent(path -> command.add(0, path.toAbsolutePath().toString()));
    command.addAll(spec.root().commandLine().getParseResult().originalArgs());
    long until = System.currentTimeMillis() + TimeUnit.SECONDS.toMillis(seconds);
    command.addAll(List.of("--until", Long.toString(until)));
    SoakSummary tally = new SoakSummary(context.err());
    ScheduledExecutorService timer = Executors.newSingleThreadScheduledExecutor();
    int code;
    try (RankLauncher processes =
        RankLauncher.start(
            command,
            ranks,
            restart ? RankLauncher.UNLIMITED : 0,
            RankLauncher.TERMINATION_GRACE,
            tally)) {
      timer.scheduleAtFixedRate(
          tally::progress, PROGRESS_SECONDS, PROGRESS_SECONDS, TimeUnit.SECONDS);
      if (killEverySeconds > 0) {
        new SoakKiller(processes, tally, timer, seed, ranks, killEverySeconds, until).start();
      }
      code = processes.await(RankLauncher.GRACE);
      // A rank that replaces a killed one has deleted the files of that one.
      tally.segmentsLeft(SegmentDirectory.countFiles(processes.pids()));
    } finally {
      timer.shutdownNow();
    }
    SoakSummary.Result result = tally.result();
    String text = text(result);
    context.out().println(text);
    file.ifPresent(to -> to.write(text));
    Optional<String> fault = result.fault(ranks);
    fault.ifPresent(context.err()::println);
    return code == ExitCode.OK && fault.isPresent() ? ExitCode.FAILURE : code;
  }

  private static String text(SoakSummary.Result result) {
    StringWriter text = new StringWriter();
    try (JsonGenerator out = new JsonFactory().createGenerator(text)) {
      out.writeStartObject();
      out.writeNumberField("collectives", result.collectives());
      out.writeNumberField("wrong", result.wrong());
      out.writeNumberField("generations", result.generations());
      out.writeNumberField("kills", result.deaths());
      out.writeNumberField("double_kills", result.doubleKills());
      out.writeNumberField("cancelled", result.cancelled());
      out.writeObjectFieldStart("recovery_ms");
      out.writeNumberField("median", result.medianRecoveryMillis());
      out.writeNumberField("max", result.maxRecoveryMillis());
      out.writeEndObject();
      out.writeObjectFieldStart("leaks");
      for (Map.Entry<String, Long> leak : result.leaks().entrySet()) {
        out.writeNumberField(leak.getKey(), leak.getValue());
      }
      out.writeEndObject();
      out.writeEndObject();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
    return text.toString();
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import io.fluxccl.InvalidUsage;
import io.fluxccl.Text;
import io.fluxccl.bootstrap.JobDumpClient;
import io.fluxccl.bootstrap.JobSecret;
import io.fluxccl.tls.Tls;
import io.fluxccl.trace.JobDump;
import io.fluxccl.trace.TraceFile;
import java.io.IOException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import picocli.CommandLine.Command;
import picocli.CommandLine.Option;
import picocli.CommandLine.Parameters;

/** {@code fluxccl dump}. */
@Command(
    name = "dump",
    description = {
      "Show the current calls of a job's ranks, and which ranks wait for which others.",
      "Does not join the job, and does not affect it."
    },
    sortOptions = false)
final class DumpCommand implements Callable<Integer> {
  private static final long LIMIT_MILLIS = 500;
  private static final int PROCESS_DIGITS = 10;

  private final CliContext context;

  @Parameters(
      index = "0",
      paramLabel = "PID|ADDRESS",
      description = {
        "The process of a rank of this machine and user, or of its launcher;",
        "or the job's address, as in FLUXCCL_ADDR, with FLUXCCL_SECRET as the job has it."
      })
  private String target;

  @Option(names = "--json", description = "Write JSON to standard output.")
  private boolean json;

  @Option(
      names = "--trace",
      paramLabel = "FILE",
      description = "Write the last calls of all ranks to a file for ui.perfetto.dev.")
  private Path trace;

  @Option(
      names = "--limit",
      paramLabel = "MILLIS",
      description = "Time limit for a rank that does not answer; 500 by default.")
  private long limitMillis = LIMIT_MILLIS;

  DumpCommand(CliContext context) {
    this.context = context;
  }

  @Override
  public Integer call() throws IOException {
    if (limitMillis < 1) {
      throw InvalidUsage.of("--limit=%d; give 1 ms or more", limitMillis);
    }
    JobDumpClient client = new JobDumpClient(json || trace != null, Duration.ofMillis(limitMillis));
    boolean isProcess = target.matches("\\d{1," + PROCESS_DIGITS + "}");
    List<CompletableFuture<JobDump>> asked =
        isProcess
            ? client.ofProcess(Long.parseLong(target))
            : List.of(client.ofAddress(target, JobSecret.from(context.environment())));
    List<JobDump> dumps = asked.stream().map(CompletableFuture::join).toList();
    if (trace != null) {
      new ResultFile("trace", trace).write(TraceFile.of(dumps));
    }
    for (JobDump dump : dumps) {
      context.out().println(json ? dump.json() : dump);
      if (dump.silent().size() == dump.nRanks()) {
        String files = "fluxccl dump: no rank answers; are %s and its files those of the job?";
        context.err().println(Text.of(files, Tls.VARIABLE));
      }
    }
    boolean healthy =
        dumps.stream().allMatch(dump -> dump.blamed().isEmpty() && dump.failure().isEmpty());
    return healthy ? ExitCode.OK : ExitCode.FAILURE;
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference;

import io.fluxccl.FluxCclException;
import io.fluxccl.group.JoinOptions;
import io.fluxccl.group.RankGroup;
import io.fluxccl.samples.inference.engine.InferenceEngine;
import io.fluxccl.samples.inference.engine.ModelOptions;
import io.fluxccl.samples.inference.engine.RestartLimits;
import io.fluxccl.samples.inference.http.HttpApi;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Path;
import java.time.Duration;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import picocli.CommandLine;
import picocli.CommandLine.Command;
import picocli.CommandLine.Option;

/**
 * One rank of the server; a launcher starts as many as the model is shared by. Rank 0 serves HTTP.
 */
@Command(
    name = "inference-server",
    mixinStandardHelpOptions = true,
    sortOptions = false,
    showDefaultValues = true,
    description = "Serves a Llama, Mistral or Qwen model, shared by the ranks of the job.")
public final class InferenceServer implements Callable<Integer> {
  private static final Logger LOG = LoggerFactory.getLogger(InferenceServer.class);
  private static final Duration SHUTDOWN = Duration.ofSeconds(30);

  @Option(names = "--model", paramLabel = "FOLDER", required = true, description = "the model")
  private Path model;

  @Option(names = "--host", defaultValue = "127.0.0.1", description = "address")
  private String host;

  @Option(names = "--port", defaultValue = "8080", description = "port")
  private int port;

  @Option(
      names = "--rows",
      defaultValue = "64",
      description = "tokens of a step, prompts' included")
  private int rows;

  @Option(names = "--sequences", defaultValue = "32", description = "requests that share a step")
  private int sequences;

  @Option(names = "--pages", defaultValue = "1024", description = "pages of 16 tokens in the cache")
  private int pages;

  @Option(names = "--waiting", defaultValue = "256", description = "requests that may wait")
  private int waiting;

  @Option(
      names = "--failures",
      defaultValue = "10",
      description = "generations in a row that may fail before a token; one more ends the server")
  private int failures;

  @Option(
      names = "--check-ranks",
      paramLabel = "N",
      description = "serve nothing, but fail if N ranks could never serve this")
  private Integer checkRanks;

  private InferenceServer() {}

  /** Runs a rank; the process ends with the server. */
  public static void main(String[] args) {
    System.exit(commandLine().execute(args));
  }

  /** Returns what main runs. */
  static CommandLine commandLine() {
    return new CommandLine(new InferenceServer())
        .setParameterExceptionHandler((e, args) -> refuse(e.getCommandLine(), e))
        .setExecutionExceptionHandler(
            (e, command, parsed) -> {
              if (e instanceof IllegalArgumentException
                  || e instanceof IOException
                  || e instanceof FluxCclException) {
                return refuse(command, e);
              }
              throw e;
            });
  }

  /** Prints one line, as the options come from a script. */
  private static int refuse(CommandLine command, Exception reason) {
    String text = String.valueOf(reason.getMessage()).replaceAll("\\s*\\R\\s*", " ");
    command.getErr().println("inference-server: " + text.replace("--check-ranks", "--ranks"));
    return 1;
  }

  /** Refuses numbers that can't work, by the names of their options. */
  private ModelOptions limits() {
    requireAtLeast("--sequences", sequences, 1);
    requireAtLeast("--rows", rows, sequences);
    requireAtLeast("--pages", pages, 1);
    requireAtLeast("--waiting", waiting, 0);
    requireAtLeast("--failures", failures, 0);
    requireAtLeast("--port", port, 0);
    if (checkRanks != null) {
      requireAtLeast("--ranks", checkRanks, 1);
    }
    return new ModelOptions(rows, sequences, pages, waiting);
  }

  private void requireAtLeast(String option, int value, int least) {
    if (value < least) {
      String why = option.equals("--rows") && least > 1 ? ", a row for each of --sequences" : "";
      throw new IllegalArgumentException(
          option + "=" + value + "; give " + least + " or more" + why);
    }
  }

  @Override
  public Integer call() throws IOException, InterruptedException {
    ModelOptions limits = limits();
    RestartLimits restarts =
        new RestartLimits(failures, RestartLimits.DEFAULT.first(), RestartLimits.DEFAULT.longest());
    if (checkRanks != null) {
      InferenceEngine.requireMemory(model, limits, checkRanks);
    }
    InferenceEngine engine = new InferenceEngine(model, limits, restarts);
    if (checkRanks != null) {
      engine.requireServable(checkRanks);
      requireFree();
      return 0;
    }
    JoinOptions options = JoinOptions.fromEnvironment();
    engine.requireServable(options.place().nRanks());
    CountDownLatch served = new CountDownLatch(1);
    Runnable stop = () -> {};
    if (options.place().rank() == 0) {
      engine.remarks().forEach(LOG::warn);
      HttpApi http = new HttpApi(engine, engine.chatTemplate(), host, port);
      http.start().block();
      stop =
          () -> {
            http.stop(SHUTDOWN).block();
            engine.close();
          };
    }
    endInOrder(stop, served);
    try (engine) {
      serve(engine, options, stop);
    } finally {
      served.countDown();
    }
    return 0;
  }

  /** Serves; if the engine gives up, clients still get the answers that say so. */
  private static void serve(InferenceEngine engine, JoinOptions options, Runnable stop) {
    try {
      engine.serve(RankGroup.generations(options)).block();
    } catch (RuntimeException e) {
      stop.run();
      throw e;
    }
  }

  private void requireFree() throws IOException {
    try {
      new ServerSocket(port, 1, InetAddress.getByName(host)).close();
    } catch (IOException e) {
      throw new IOException(host + ":" + port + ": " + e.getMessage(), e);
    }
  }

  /**
   * A signal to end finishes what runs: rank 0 stops the server, and all ranks, which the launcher
   * signals together, stay until their part is done.
   */
  private static void endInOrder(Runnable stop, CountDownLatch served) {
    Runnable hook =
        () -> {
          if (served.getCount() > 0) {
            stop.run();
          }
          try {
            if (!served.await(2 * SHUTDOWN.toSeconds(), TimeUnit.SECONDS)) {
              LOG.warn("ended before the other ranks did");
            }
          } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
          }
        };
    Runtime.getRuntime().addShutdownHook(new Thread(hook, "shutdown"));
  }
}

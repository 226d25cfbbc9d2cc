// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.testkit;

import io.fluxccl.Experimental;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.bootstrap.JobSecret;
import io.fluxccl.concurrent.Closing;
import io.fluxccl.group.JoinOptions;
import java.io.IOException;
import java.net.BindException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.ThreadLocalRandom;
import java.util.function.IntFunction;
import java.util.function.Predicate;
import java.util.stream.IntStream;

/**
 * The ranks of a job as processes, which a test kills, stops and replaces. Each is a JVM with the
 * class path of this one, or any other program. It finds its rank in its environment, as under a
 * launcher: {@code RankGroup.fromEnvironment()}. A variable ({@code FLUXCCL_HOSTID}) or a prefix
 * ({@code ip netns exec}) places a rank on another host. {@link Builder#joinOptions} lets ranks of
 * this JVM join, too. A pool of warm JVMs is ranks whose {@code main} reads one job per line: a
 * test sends the next job to the ranks that are left, and replaces the others.
 *
 * <pre>{@code
 * try (ProcessRanks ranks = ProcessRanks.of(3, Service.class)) {
 *   ranks.all().forEach(rank -> rank.awaitLine("serving"));
 *   ranks.get(1).kill();
 *   ranks.get(0).awaitLine("rank 1 has died");
 *   ranks.replace(1);
 * }
 * }</pre>
 *
 * <p>Processes that are left are killed on close, and when this JVM ends. Errors name the rank, its
 * exit code and its lines. Not thread-safe.
 */
@Experimental
public final class ProcessRanks implements AutoCloseable {
  private final Builder builder;

  /** The JVM's shutdown hook reads it, too. */
  private final List<ProcessRank> ranks = new CopyOnWriteArrayList<>();

  private final Thread atExit = new Thread(() -> ranks.forEach(ProcessRank::destroy));

  private ProcessRanks(Builder builder) {
    this.builder = builder;
    Runtime.getRuntime().addShutdownHook(atExit);
    Closing.onFailure(
        this,
        () -> IntStream.range(0, builder.nRanks).mapToObj(builder::startRank).forEach(ranks::add));
  }

  /**
   * Starts the ranks of a job.
   *
   * @param nRanks 1 or more
   * @param main whose {@code main} each process runs
   * @param arguments of {@code main}
   * @return the ranks, which the caller closes
   */
  public static ProcessRanks of(int nRanks, Class<?> main, String... arguments) {
    return builder(nRanks, main).arguments(arguments).start();
  }

  /** Returns a builder that starts the ranks of a job; otherwise as {@link #of}. */
  public static Builder builder(int nRanks, Class<?> main) {
    InvalidUsage.requireNonNull(main, "ProcessRanks", "main");
    Builder builder = new Builder(nRanks, List.of());
    builder.main = main.getName();
    return builder;
  }

  /**
   * Returns a builder that starts another program than a JVM as each rank, such as a script.
   *
   * @param command the program and its first arguments
   */
  public static Builder builder(int nRanks, List<String> command) {
    if (InvalidUsage.requireNonNull(command, "ProcessRanks", "command").isEmpty()) {
      throw new InvalidUsage("ProcessRanks command=[]; give a program");
    }
    return new Builder(nRanks, command);
  }

  /** Returns the process of a rank, also when it has ended. */
  public ProcessRank get(int rank) {
    return ranks.get(rank);
  }

  /** Returns the processes by rank. */
  public List<ProcessRank> all() {
    return List.copyOf(ranks);
  }

  /** Kills the processes of some ranks at once, and waits until they have ended. */
  public void kill(List<Integer> which) {
    which.forEach(rank -> ranks.get(rank).destroy());
    which.forEach(rank -> ranks.get(rank).kill());
  }

  /** Kills the process of a rank if it runs, and starts another one in its place. */
  public ProcessRank replace(int rank) {
    ranks.get(rank).kill();
    ranks.set(rank, builder.startRank(rank));
    return ranks.get(rank);
  }

  @Override
  public void close() {
    Closing.all(ranks.stream().<AutoCloseable>map(rank -> rank).toList());
    try {
      Runtime.getRuntime().removeShutdownHook(atExit);
    } catch (IllegalStateException e) {
      return; // the JVM is ending: the hook runs
    }
  }

  /** How the processes are started. */
  public static final class Builder {
    private final int nRanks;
    private final List<String> program;
    private final Map<String, String> variables = new LinkedHashMap<>();
    private final List<String> jvmOptions = new ArrayList<>();
    private final List<String> prefix = new ArrayList<>();
    private final List<String> arguments = new ArrayList<>();

    /** The class that each JVM runs; null if the program is no JVM. */
    private String main;

    private Duration limit = Duration.ofSeconds(60);

    /** Destination of standard error; null for the lines. */
    private ProcessBuilder.Redirect errors;

    private String failure;
    private Predicate<String> removed = name -> false;
    private IntFunction<Map<String, String>> variablesByRank = rank -> Map.of();
    private IntFunction<List<String>> prefixByRank = rank -> List.of();

    private Builder(int nRanks, List<String> program) {
      if (nRanks < 1) {
        throw InvalidUsage.of("ProcessRanks nRanks=%d; give 1 or more", nRanks);
      }
      this.nRanks = nRanks;
      this.program = List.copyOf(program);
      variables.put("FLUXCCL_NRANKS", Integer.toString(nRanks));
      variables.put("FLUXCCL_ADDR", "127.0.0.1:" + freePort(100));
      variables.put("FLUXCCL_SECRET", JobSecret.random().text());
    }

    /** Returns a free port, below the ephemeral ones of most systems and the fixed ones of most. */
    private static int freePort(int attempts) {
      int port = ThreadLocalRandom.current().nextInt(10_000, 30_000);
      try (ServerSocket probe = new ServerSocket(port, 1, InetAddress.getLoopbackAddress())) {
        return probe.getLocalPort();
      } catch (IOException e) {
        if (attempts == 1 || !(e instanceof BindException)) {
          throw FluxCclException.from(e);
        }
        return freePort(attempts - 1);
      }
    }

    /** Adds variables to the environment; they replace those by which ranks find each other. */
    public Builder variables(Map<String, String> more) {
      variables.putAll(more);
      return this;
    }

    /** Sets the variables that differ from rank to rank. */
    public Builder variablesByRank(IntFunction<Map<String, String>> more) {
      variablesByRank = more;
      return this;
    }

    /**
     * Removes variables that this JVM or the job would give to the processes, but none that is
     * added later. Without those of the job, a process is no rank: it may launch ranks itself.
     */
    public Builder removeVariables(Predicate<String> names) {
      removed = removed.or(names);
      variables.keySet().removeIf(names);
      return this;
    }

    /**
     * Returns the options with which a rank in this JVM joins the job of these processes: the job's
     * address and secret, otherwise those of this JVM's environment.
     *
     * @throws InvalidUsage if {@link #removeVariables} has removed the job's variables
     */
    public JoinOptions joinOptions(int rank) {
      if (!variables.containsKey("FLUXCCL_ADDR") || !variables.containsKey("FLUXCCL_SECRET")) {
        throw new InvalidUsage("ProcessRanks joinOptions: the job's variables are removed");
      }
      return JoinOptions.of(rank, nRanks)
          .withAddress(variables.get("FLUXCCL_ADDR"))
          .withSecret(JobSecret.of(variables.get("FLUXCCL_SECRET")));
    }

    /**
     * Adds options of the JVMs, such as {@code -Xmx128m}.
     *
     * @throws InvalidUsage if the ranks are another program
     */
    public Builder jvmOptions(String... more) {
      if (main == null) {
        throw InvalidUsage.of("ProcessRanks jvmOptions: %s is no JVM", program.get(0));
      }
      jvmOptions.addAll(List.of(more));
      return this;
    }

    /** Starts the processes by another program, such as {@code nice}. */
    public Builder prefix(List<String> command) {
      prefix.addAll(command);
      return this;
    }

    /** Starts the process of each rank by another program, such as {@code ip netns exec}. */
    public Builder prefixByRank(IntFunction<List<String>> command) {
      prefixByRank = command;
      return this;
    }

    /** Adds arguments of {@code main}, or of the program. */
    public Builder arguments(String... more) {
      arguments.addAll(List.of(more));
      return this;
    }

    /** Sets how long {@link ProcessRank#awaitLine} and its kin wait; 60 s if not set. */
    public Builder limit(Duration newLimit) {
      limit = newLimit;
      return this;
    }

    /** Redirects their standard error to that of this JVM, instead of to their lines. */
    public Builder errorsApart() {
      errors = ProcessBuilder.Redirect.INHERIT;
      return this;
    }

    /** Keeps the lines of their standard error apart, as {@link ProcessRank#errors}. */
    public Builder keepErrors() {
      errors = ProcessBuilder.Redirect.PIPE;
      return this;
    }

    /**
     * Sets the beginning of a line of output by which a rank reports its failure. {@link
     * ProcessRank#awaitLine} then throws at once, if it awaits another line.
     */
    public Builder failure(String beginning) {
      failure = beginning;
      return this;
    }

    /** Starts the processes of all ranks. */
    public ProcessRanks start() {
      return new ProcessRanks(this);
    }

    /** Starts the process of one rank, which the caller closes; the other ranks run elsewhere. */
    public ProcessRank startRank(int rank) {
      List<String> command = new ArrayList<>(prefix);
      command.addAll(prefixByRank.apply(rank));
      command.addAll(program);
      if (main != null) {
        command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
        command.addAll(jvmOptions);
        command.addAll(List.of("-cp", System.getProperty("java.class.path"), main));
      }
      command.addAll(arguments);
      ProcessBuilder process = new ProcessBuilder(command).redirectErrorStream(errors == null);
      if (errors != null) {
        process.redirectError(errors);
      }
      process.environment().put("FLUXCCL_RANK", Integer.toString(rank));
      process.environment().keySet().removeIf(removed);
      process.environment().putAll(variables);
      process.environment().putAll(variablesByRank.apply(rank));
      try {
        return new ProcessRank(rank, process.start(), limit, failure);
      } catch (IOException e) {
        throw FluxCclException.from(e);
      }
    }
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.testkit;

import io.fluxccl.Experimental;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.bootstrap.JobSecret;
import io.fluxccl.concurrent.Closing;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.function.IntFunction;

/**
 * The ranks of a job as processes, which a test kills, stops and replaces. Each is a JVM with the
 * class path of this one, and finds its rank in its environment, as under a launcher: {@code
 * RankGroup.fromEnvironment()}.
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
 * <p>Processes that are left are killed on close, and when this JVM ends. Not thread-safe.
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
    try {
      for (int rank = 0; rank < builder.nRanks; rank++) {
        ranks.add(builder.startRank(rank));
      }
    } catch (RuntimeException e) {
      close();
      throw e;
    }
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
    return new Builder(nRanks, main);
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
    private final Class<?> main;
    private final Map<String, String> variables = new LinkedHashMap<>();
    private final List<String> jvmOptions = new ArrayList<>();
    private final List<String> prefix = new ArrayList<>();
    private final List<String> arguments = new ArrayList<>();
    private Duration limit = Duration.ofSeconds(60);
    private boolean errorsApart;
    private IntFunction<Map<String, String>> variablesByRank = rank -> Map.of();

    private Builder(int nRanks, Class<?> main) {
      if (nRanks < 1) {
        throw InvalidUsage.of("ProcessRanks nRanks=%d; give 1 or more", nRanks);
      }
      this.nRanks = nRanks;
      this.main = InvalidUsage.requireNonNull(main, "ProcessRanks", "main");
      variables.put("FLUXCCL_NRANKS", Integer.toString(nRanks));
      variables.put("FLUXCCL_ADDR", "127.0.0.1:" + freePort());
      variables.put("FLUXCCL_SECRET", JobSecret.random().text());
    }

    private static int freePort() {
      try (ServerSocket probe = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
        return probe.getLocalPort();
      } catch (IOException e) {
        throw FluxCclException.from(e);
      }
    }

    /** Adds variables to the environment; they replace those by which ranks find each other. */
    public Builder variables(Map<String, String> more) {
      variables.putAll(more);
      return this;
    }

    /** Adds variables that differ from rank to rank. */
    public Builder variablesByRank(IntFunction<Map<String, String>> more) {
      variablesByRank = more;
      return this;
    }

    /** Adds options of the JVMs, such as {@code -Xmx128m}. */
    public Builder jvmOptions(String... more) {
      jvmOptions.addAll(List.of(more));
      return this;
    }

    /** Starts the processes by another program, such as {@code nice}. */
    public Builder prefix(List<String> command) {
      prefix.addAll(command);
      return this;
    }

    /** Adds arguments of {@code main}. */
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
      errorsApart = true;
      return this;
    }

    /** Starts the processes of all ranks. */
    public ProcessRanks start() {
      return new ProcessRanks(this);
    }

    /** Starts the process of one rank, which the caller closes; the other ranks run elsewhere. */
    public ProcessRank startRank(int rank) {
      List<String> command = new ArrayList<>(prefix);
      command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
      command.addAll(jvmOptions);
      command.addAll(List.of("-cp", System.getProperty("java.class.path"), main.getName()));
      command.addAll(arguments);
      ProcessBuilder process = new ProcessBuilder(command).redirectErrorStream(!errorsApart);
      if (errorsApart) {
        process.redirectError(ProcessBuilder.Redirect.INHERIT);
      }
      process.environment().put("FLUXCCL_RANK", Integer.toString(rank));
      process.environment().putAll(variables);
      process.environment().putAll(variablesByRank.apply(rank));
      try {
        return new ProcessRank(rank, process.start(), limit);
      } catch (IOException e) {
        throw FluxCclException.from(e);
      }
    }
  }
}

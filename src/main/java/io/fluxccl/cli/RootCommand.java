// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.LocalFiles;
import io.fluxccl.Text;
import io.fluxccl.settings.Settings;
import java.io.IOException;
import java.io.InputStream;
import java.io.PrintWriter;
import java.io.UncheckedIOException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.CompletionException;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Supplier;
import picocli.CommandLine;
import picocli.CommandLine.Command;
import picocli.CommandLine.IVersionProvider;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Option;
import picocli.CommandLine.ParameterException;
import picocli.CommandLine.ParseResult;
import picocli.CommandLine.ScopeType;
import picocli.CommandLine.Spec;
import picocli.CommandLine.TypeConversionException;
import picocli.CommandLine.UnmatchedArgumentException;

/** {@code fluxccl} itself: starts its subcommands, and prints each error as one line. */
@Command(
    name = "fluxccl",
    description = "GPU communication for the JVM: measure it, launch ranks, show the machine.",
    versionProvider = RootCommand.Version.class,
    synopsisSubcommandLabel = "COMMAND",
    sortOptions = false)
final class RootCommand implements Runnable {
  /** Environment variable with the level of the log; warn if it is not set. */
  static final String LOG_VARIABLE = "FLUXCCL_LOG";

  private static final String LOGBACK_PROPERTY = "logback.configurationFile";
  private static final String LOGBACK_CONFIGURATION = "io/fluxccl/cli/logback-cli.xml";

  @Spec private CommandSpec spec;

  @Option(
      names = {"-h", "--help"},
      usageHelp = true,
      scope = ScopeType.INHERIT,
      description = "Show this help.")
  private boolean help;

  @Option(
      names = {"-V", "--version"},
      versionHelp = true,
      description = "Show the version.")
  private boolean version;

  @Option(
      names = "--verbose",
      scope = ScopeType.INHERIT,
      description = "Show the stack trace of an error.")
  private boolean verbose;

  private RootCommand() {}

  /** The subcommands of a program by name. */
  interface Commands {
    /** Returns what sets each subcommand up. */
    Map<String, Supplier<CommandLine>> of(CliContext context);
  }

  /**
   * Runs a command as this process, and exits with its code.
   *
   * @param backend makes ranks
   * @param mainClass starts the process of a rank; calls this method too
   * @param args the command line
   */
  static void start(PerfBackend backend, Class<?> mainClass, String[] args) {
    start("fluxccl", RootCommand::commands, backend, mainClass, args);
  }

  /**
   * Runs a command of a program as this process, and exits with its code.
   *
   * @param program what users call it by
   * @param commands its subcommands
   * @param backend makes ranks
   * @param mainClass starts the process of a rank; calls this method too
   * @param args the command line
   */
  static void start(
      String program, Commands commands, PerfBackend backend, Class<?> mainClass, String[] args) {
    if (System.getProperty(LOGBACK_PROPERTY) == null) {
      // Not in a logback.xml, because applications that use the library bring their own.
      System.setProperty(LOGBACK_PROPERTY, LOGBACK_CONFIGURATION);
    }
    try {
      ParentWatchdog.start(System.getenv());
    } catch (InvalidUsage e) {
      System.err.println("fluxccl: " + e.getMessage());
      System.exit(ExitCode.USAGE);
    }
    CliContext context =
        new CliContext(backend, mainClass.getName(), System.getenv(), System.out, System.err);
    System.exit(run(context, commandLine(program, commands.of(context), context, args), args));
  }

  /**
   * Runs a command.
   *
   * @param context what the command may use
   * @param args the command line
   * @return the exit code
   */
  static int run(CliContext context, String... args) {
    return run(context, commandLine(context, args), args);
  }

  private static int run(CliContext context, CommandLine commandLine, String... args) {
    try {
      // Logback reads the variable itself, but takes an unknown word for debug.
      Settings.of(context.environment()).word(LOG_VARIABLE);
    } catch (InvalidUsage e) {
      context.err().println("fluxccl: " + e.getMessage());
      return ExitCode.USAGE;
    }
    int code = commandLine.execute(args);
    context.err().flush();
    // Also flushes. A stream for printing keeps its errors to itself.
    if (context.out().checkError() && code == ExitCode.OK) {
      context
          .err()
          .println(
              "fluxccl: standard output can't be written, so it is incomplete; is the disk full, or"
                  + " has its reader ended?");
      return ExitCode.FAILURE;
    }
    return code;
  }

  private static Map<String, Supplier<CommandLine>> commands(CliContext context) {
    Map<String, Supplier<CommandLine>> commands = new LinkedHashMap<>();
    commands.put("perf", () -> PerfCommand.commandLine(context));
    // Options after the launched command's name belong to that command.
    commands.put(
        "launch", () -> new CommandLine(new LaunchCommand(context)).setStopAtPositional(true));
    commands.put("info", () -> new CommandLine(new SystemReport.InfoCommand(context)));
    commands.put("dump", () -> new CommandLine(new DumpCommand(context)));
    return commands;
  }

  static CommandLine commandLine(CliContext context, String... args) {
    CommandLine root = commandLine("fluxccl", commands(context), context, args);
    String more = "A checkout and the bundle also have 'fluxccl bench': benchmarks and a soak.";
    root.getCommandSpec().usageMessage().footer("", more);
    return root;
  }

  /**
   * Returns the command line with the subcommand that the first argument names; with all of them if
   * it names none. Setting one up costs up to a tenth of a second.
   */
  static CommandLine commandLine(
      String program,
      Map<String, Supplier<CommandLine>> commands,
      CliContext context,
      String... args) {
    String first = args.length == 0 ? "" : args[0];
    if (commands.containsKey(first)) {
      commands.keySet().retainAll(Set.of(first));
    }
    CommandLine root = new CommandLine(new RootCommand()).setCommandName(program);
    commands.forEach((name, command) -> root.addSubcommand(name, command.get()));
    return root.registerConverter(Path.class, RootCommand::path)
        .setExpandAtFiles(false)
        .setOut(new PrintWriter(context.out(), true))
        .setErr(new PrintWriter(context.err(), true))
        .setParameterExceptionHandler((e, unused) -> printUsageError(e))
        .setExecutionExceptionHandler(RootCommand::printFailure);
  }

  private static Path path(String text) {
    try {
      return LocalFiles.path("path", text);
    } catch (InvalidUsage e) {
      throw new TypeConversionException(e.getMessage());
    }
  }

  private static int printUsageError(ParameterException e) {
    String suggestion =
        e instanceof UnmatchedArgumentException unmatched && !unmatched.getSuggestions().isEmpty()
            ? "; did you mean '" + unmatched.getSuggestions().get(0) + "'?"
            : "";
    CommandLine command = e.getCommandLine();
    String name = command.getCommandSpec().qualifiedName();
    print(command, Text.of("%s%s; see '%s --help'", e.getMessage(), suggestion, name), e);
    return ExitCode.USAGE;
  }

  private static int printFailure(Exception thrown, CommandLine command, ParseResult parsed) {
    // The failure of a future that was joined lies inside.
    Exception e = thrown instanceof CompletionException ? FluxCclException.from(thrown) : thrown;
    boolean usage = e instanceof InvalidUsage;
    print(
        command, describe(e) + (isVerbose(command) || usage ? "" : " (--verbose shows where)"), e);
    return usage ? ExitCode.USAGE : ExitCode.FAILURE;
  }

  private static void print(CommandLine command, String message, Exception e) {
    command.getErr().println(command.getCommandSpec().qualifiedName() + ": " + message);
    if (isVerbose(command)) {
      e.printStackTrace(command.getErr());
    }
  }

  private static boolean isVerbose(CommandLine command) {
    return ((RootCommand) command.getCommandSpec().root().userObject()).verbose;
  }

  private static String describe(Exception e) {
    if (!(e instanceof FluxCclException failure)) {
      return "unexpected " + e;
    }
    String kind = failure.code().name().toLowerCase(Locale.ROOT).replace('_', ' ');
    String rank =
        failure.rank() == FluxCclException.NO_RANK ? "" : " (rank " + failure.rank() + ")";
    return kind + rank + ": " + failure.getMessage();
  }

  @Override
  public void run() {
    throw new ParameterException(spec.commandLine(), "no command given");
  }

  /** Provides the version that the build wrote to a resource. */
  static final class Version implements IVersionProvider {
    private static final String RESOURCE = "build.properties";

    @Override
    public String[] getVersion() {
      return new String[] {"fluxccl " + current()};
    }

    /** Returns the version, for example {@code 0.1.0}. */
    static String current() {
      Properties build = new Properties();
      try (InputStream in = RootCommand.class.getResourceAsStream(RESOURCE)) {
        if (in != null) {
          build.load(in);
        }
      } catch (IOException e) {
        throw new UncheckedIOException(RESOURCE + " can't be read", e);
      }
      return build.getProperty("version", "unknown");
    }
  }

  /**
   * Ends this process when the launcher that FLUXCCL_PARENT_PID names has ended, because a launcher
   * that is killed can't end its ranks itself.
   */
  private static final class ParentWatchdog {
    private static final Duration PERIOD = Duration.ofMillis(500);
    private static final Duration SHUTDOWN_GRACE = Duration.ofSeconds(5);

    private final long parent;
    private final boolean direct;

    private ParentWatchdog(long parent) {
      this.parent = parent;
      this.direct = isOurParent();
    }

    /** Watches the launcher, if the environment names one; ends this process when it has ended. */
    static void start(Map<String, String> environment) {
      Optional<Integer> pid = Settings.of(environment).number(RankVariables.PARENT);
      if (pid.isPresent()) {
        ParentWatchdog watch = new ParentWatchdog(pid.get());
        if (!watch.parentRuns()) {
          System.exit(ExitCode.ORPHANED);
        }
        daemon(watch::watch, "fluxccl-parent-watch");
      }
    }

    private void watch() {
      while (parentRuns()) {
        LockSupport.parkNanos(PERIOD.toNanos());
      }
      // Shutdown hooks have a while to clean up.
      daemon(() -> System.exit(ExitCode.ORPHANED), "fluxccl-orphan-exit");
      LockSupport.parkNanos(SHUTDOWN_GRACE.toNanos());
      Runtime.getRuntime().halt(ExitCode.ORPHANED);
    }

    /**
     * Returns whether the launcher runs. A zombie looks alive, but its children have a new parent.
     */
    private boolean parentRuns() {
      return direct
          ? isOurParent()
          : ProcessHandle.of(parent).map(ProcessHandle::isAlive).orElse(false);
    }

    private boolean isOurParent() {
      return ProcessHandle.current().parent().map(handle -> handle.pid() == parent).orElse(false);
    }

    private static void daemon(Runnable task, String name) {
      Thread thread = new Thread(task, name);
      thread.setDaemon(true);
      thread.start();
    }
  }
}

package io.fluxccl.cli;

import io.fluxccl.InvalidUsage;
import picocli.CommandLine;
import picocli.CommandLine.Command;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Option;
import picocli.CommandLine.ParameterException;
import picocli.CommandLine.ScopeType;
import picocli.CommandLine.Spec;

/**
 * The entry point of the command line: {@code fluxccl perf all-reduce}, {@code fluxccl launch},
 * {@code fluxccl info}.
 */
@Command(
    name = "fluxccl",
    description = "GPU communication for the JVM: measure it, launch ranks, see what is there.",
    versionProvider = Version.class,
    synopsisSubcommandLabel = "COMMAND",
    sortOptions = false)
public final class Main implements Runnable {
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

  private Main() {}

  /**
   * Runs a command and exits with its code: 0 all is well, 1 something failed, 2 wrong usage.
   *
   * @param args the command line
   */
  public static void main(String[] args) {
    start(new GroupBackend(), Main.class, args);
  }

  /**
   * Runs a command as this process.
   *
   * @param backend makes ranks
   * @param mainClass what a rank's own process starts with; calls this too
   * @param args the command line
   */
  static void start(PerfBackend backend, Class<?> mainClass, String[] args) {
    if (System.getProperty(LOGBACK_PROPERTY) == null) {
      // Here and not in a logback.xml: applications that use the library bring their own.
      System.setProperty(LOGBACK_PROPERTY, LOGBACK_CONFIGURATION);
    }
    try {
      ParentWatch.start(System.getenv());
    } catch (InvalidUsage e) {
      System.err.println("fluxccl: " + e.getMessage());
      System.exit(ExitCode.USAGE);
    }
    CliContext context =
        new CliContext(backend, mainClass.getName(), System.getenv(), System.out, System.err);
    System.exit(run(context, args));
  }

  /**
   * Runs a command.
   *
   * @param context where
   * @param args the command line
   * @return the exit code
   */
  static int run(CliContext context, String... args) {
    try {
      LogLevel.check(context.environment());
    } catch (InvalidUsage e) {
      context.err().println("fluxccl: " + e.getMessage());
      return ExitCode.USAGE;
    }
    int code = commandLine(context).execute(args);
    context.out().flush();
    context.err().flush();
    return code;
  }

  static CommandLine commandLine(CliContext context) {
    // What follows the launched command's name is its own.
    CommandLine launch = new CommandLine(new LaunchCommand(context)).setStopAtPositional(true);
    return new CommandLine(new Main())
        .addSubcommand("perf", PerfCommand.commandLine(context))
        .addSubcommand("launch", launch)
        .addSubcommand("info", new InfoCommand(context))
        .setExpandAtFiles(false)
        .setOut(new java.io.PrintWriter(context.out(), true))
        .setErr(new java.io.PrintWriter(context.err(), true))
        .setParameterExceptionHandler(new UsageErrors())
        .setExecutionExceptionHandler(new Failures());
  }

  /** Whether stack traces were asked for. */
  static boolean verbose(CommandLine command) {
    CommandLine root = command;
    while (root.getParent() != null) {
      root = root.getParent();
    }
    return ((Main) root.getCommand()).verbose;
  }

  @Override
  public void run() {
    throw new ParameterException(spec.commandLine(), "no command given");
  }
}

package io.fluxccl.cli;

import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import java.util.concurrent.CompletionException;
import picocli.CommandLine;
import picocli.CommandLine.IExecutionExceptionHandler;
import picocli.CommandLine.ParseResult;

/** Says in one line what failed. */
final class Failures implements IExecutionExceptionHandler {
  @Override
  public int handleExecutionException(Exception thrown, CommandLine command, ParseResult parsed) {
    Exception e = unwrapped(thrown);
    String name = command.getCommandSpec().qualifiedName();
    boolean verbose = Main.verbose(command);
    boolean usage = e instanceof InvalidUsage;
    String hint = verbose || usage ? "" : " (--verbose shows where)";
    command.getErr().println(name + ": " + describe(e) + hint);
    if (verbose) {
      e.printStackTrace(command.getErr());
    }
    return usage ? ExitCode.USAGE : ExitCode.FAILURE;
  }

  /** The failure of a future that was joined lies inside. */
  private static Exception unwrapped(Exception e) {
    return e instanceof CompletionException ? FluxCclException.from(e) : e;
  }

  private static String describe(Exception e) {
    if (!(e instanceof FluxCclException failure)) {
      return "unexpected " + e;
    }
    String kind = failure.code().name().toLowerCase(java.util.Locale.ROOT).replace('_', ' ');
    String rank =
        failure.rank() == FluxCclException.NO_RANK ? "" : " (rank " + failure.rank() + ")";
    return kind + rank + ": " + failure.getMessage();
  }
}

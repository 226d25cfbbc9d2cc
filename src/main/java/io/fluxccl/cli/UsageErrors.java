package io.fluxccl.cli;

import picocli.CommandLine;
import picocli.CommandLine.IParameterExceptionHandler;
import picocli.CommandLine.ParameterException;
import picocli.CommandLine.UnmatchedArgumentException;

/** Says in one line what is wrong with a command line. */
final class UsageErrors implements IParameterExceptionHandler {
  @Override
  public int handleParseException(ParameterException e, String[] args) {
    CommandLine command = e.getCommandLine();
    String name = command.getCommandSpec().qualifiedName();
    command
        .getErr()
        .println(name + ": " + e.getMessage() + suggestion(e) + "; see '" + name + " --help'");
    if (Main.verbose(command)) {
      e.printStackTrace(command.getErr());
    }
    return ExitCode.USAGE;
  }

  private static String suggestion(ParameterException e) {
    if (e instanceof UnmatchedArgumentException unmatched
        && !unmatched.getSuggestions().isEmpty()) {
      return "; did you mean '" + unmatched.getSuggestions().get(0) + "'?";
    }
    return "";
  }
}

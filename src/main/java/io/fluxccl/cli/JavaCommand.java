package io.fluxccl.cli;

import java.lang.management.ManagementFactory;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/**
 * The command that starts a class in a JVM like this one: the same Java, options and class path.
 *
 * @param mainClass the class
 */
record JavaCommand(String mainClass) {
  /** The command, with the arguments at its end. */
  List<String> with(List<String> arguments) {
    List<String> command = new ArrayList<>();
    command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
    for (String option : ManagementFactory.getRuntimeMXBean().getInputArguments()) {
      // A debugger's port can't be shared.
      if (!option.startsWith("-agentlib:jdwp") && !option.startsWith("-Xrunjdwp")) {
        command.add(option);
      }
    }
    command.add("-cp");
    command.add(System.getProperty("java.class.path"));
    command.add(mainClass);
    command.addAll(arguments);
    return command;
  }
}

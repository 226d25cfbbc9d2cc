package io.fluxccl.cli;

import java.io.PrintStream;
import java.util.Map;

/**
 * Where the command line runs: what commands may know of the world, so that tests can give another.
 *
 * @param backend makes ranks
 * @param mainClass the class that a rank's own process starts with
 * @param environment the environment variables
 * @param out for results
 * @param err for errors and other remarks
 */
record CliContext(
    PerfBackend backend,
    String mainClass,
    Map<String, String> environment,
    PrintStream out,
    PrintStream err) {}

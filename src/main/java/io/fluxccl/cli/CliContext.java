// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import java.io.PrintStream;
import java.util.Map;

/**
 * The environment of a command, which tests replace.
 *
 * @param backend makes ranks
 * @param mainClass the class that starts the process of a rank
 * @param environment the environment variables
 * @param out for results
 * @param err for errors and progress
 */
record CliContext(
    PerfBackend backend,
    String mainClass,
    Map<String, String> environment,
    PrintStream out,
    PrintStream err) {}

/**
 * The command line: {@code perf}, {@code launch} and {@code info}.
 *
 * <p>May import every other package; none imports this one.
 */
package io.fluxccl.cli;

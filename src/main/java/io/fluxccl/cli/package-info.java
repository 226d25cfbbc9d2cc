// SPDX-License-Identifier: Apache-2.0
/**
 * The command line: {@code perf}, {@code launch}, {@code soak}, {@code info} and {@code dump}.
 *
 * <p>May import every other package; none imports this one.
 */
@Experimental
package io.fluxccl.cli;

import io.fluxccl.Experimental;

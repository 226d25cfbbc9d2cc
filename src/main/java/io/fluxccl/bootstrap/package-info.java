// SPDX-License-Identifier: Apache-2.0
/**
 * The control network by which ranks find each other before faster connections exist: messages,
 * gathers and barriers over TCP or inside one JVM, and notices of dead ranks.
 *
 * <p>Imports the root package only.
 */
package io.fluxccl.bootstrap;

// SPDX-License-Identifier: Apache-2.0
/**
 * How ranks find each other and talk before there is anything faster: messages, gathers and
 * barriers over TCP or inside one JVM, and the news that a rank has died.
 *
 * <p>Imports the root package only.
 */
package io.fluxccl.bootstrap;

// SPDX-License-Identifier: Apache-2.0
/**
 * The CUDA IPC transport. GPUs of one host map each other's memory, and a write is an asynchronous
 * copy on the connection's own stream.
 *
 * <p>Imports the root package, {@code concurrent}, {@code device}, {@code device.cuda}, {@code
 * transport} and {@code transport.mapped}.
 */
@Experimental
package io.fluxccl.transport.cudaipc;

import io.fluxccl.Experimental;

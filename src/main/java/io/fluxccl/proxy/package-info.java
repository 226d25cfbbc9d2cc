// SPDX-License-Identifier: Apache-2.0
/**
 * The path of requests from a device to the host: the ring to which kernels push 128-bit triggers,
 * and the agent that takes the triggers and passes them to a handler.
 *
 * <p>Imports the root package, {@code device} and {@code device.host}; does not depend on the
 * meaning of a trigger beyond its bits.
 */
package io.fluxccl.proxy;

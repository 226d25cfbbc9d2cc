// SPDX-License-Identifier: Apache-2.0
/**
 * The device abstraction: memory, streams, kernels, and the flag that aborts waiting kernels.
 * {@code device.host} and the GPU devices implement this interface. The code above it is the same
 * for all devices.
 *
 * <p>Imports the root package and {@code concurrent}.
 */
package io.fluxccl.device;

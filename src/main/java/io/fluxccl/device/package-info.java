// SPDX-License-Identifier: Apache-2.0
/**
 * What a device is: memory, streams, kernels, and the flag that makes waiting kernels give up. The
 * service provider interface that {@code device.host} and the GPU devices implement; everything
 * above is the same code on all of them.
 *
 * <p>Imports the root package and {@code concurrent}.
 */
package io.fluxccl.device;

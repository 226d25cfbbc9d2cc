// SPDX-License-Identifier: Apache-2.0
/**
 * The entry point of the library: bootstrap, device, communicator and collectives in one object,
 * configured by the environment and closed together.
 *
 * <p>Imports everything below.
 */
package io.fluxccl.group;

// SPDX-License-Identifier: Apache-2.0
/**
 * Everything that a newcomer needs, in one object: bootstrap, device, communicator and stream from
 * the environment, closed together.
 *
 * <p>Imports everything below.
 */
package io.fluxccl.group;

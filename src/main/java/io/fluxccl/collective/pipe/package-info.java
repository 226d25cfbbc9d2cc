// SPDX-License-Identifier: Apache-2.0
/**
 * Pipes of the host device: rings of slots between two ranks, through which all its collectives
 * move data. A pipe in mapped memory is written by its sender directly.
 *
 * <p>Imports {@code device.host}; the algorithm packages {@code collective.host} and {@code
 * collective.channel} import it.
 */
@Experimental
package io.fluxccl.collective.pipe;

import io.fluxccl.Experimental;

// SPDX-License-Identifier: Apache-2.0
/**
 * Collectives of ranks some of which can't map each other's memory: on several hosts, or over
 * sockets by choice. On the host device and on GPUs, through pipes of staging memory between each
 * two ranks.
 *
 * <p>Imports {@code collective}, {@code collective.pipe} and the layers below. Found by
 * ServiceLoader.
 */
@Experimental
package io.fluxccl.collective.channel;

import io.fluxccl.Experimental;

// SPDX-License-Identifier: Apache-2.0
/**
 * Collectives of host-device ranks that map each other's memory: kernels in Java.
 *
 * <p>Imports {@code collective}, {@code collective.pipe} and the layers below. Found by
 * ServiceLoader.
 */
@Experimental
package io.fluxccl.collective.host;

import io.fluxccl.Experimental;

// SPDX-License-Identifier: Apache-2.0
/**
 * All-reduces between hosts by a network that reduces data itself: NCCL's CollNet.
 *
 * <p>Imports {@code collective.channel}, {@code transport.plugin}, {@code netplugin} and the
 * packages below. Part of the jar {@code fluxccl-nccl}.
 */
@Experimental
package io.fluxccl.collective.collnet;

import io.fluxccl.Experimental;

// SPDX-License-Identifier: Apache-2.0
/**
 * The RDMA transports IB0 to IB7, over InfiniBand and RoCE. Each connection has one queue pair,
 * which one thread at a time uses. The implementation of {@link io.fluxccl.transport.ib.Verbs} is
 * loaded by name, because it needs a native library that not every machine has.
 *
 * <p>Imports the root package, {@code concurrent}, {@code wire}, {@code device}, {@code
 * device.host} and {@code transport}. It is the jar {@code fluxccl-rdma}.
 */
@Experimental
package io.fluxccl.transport.ib;

import io.fluxccl.Experimental;

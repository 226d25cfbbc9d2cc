// SPDX-License-Identifier: Apache-2.0
/**
 * RDMA verbs implemented by DiSNI. A class loader of its own, which locates DiSNI's native library,
 * loads this package and DiSNI. So other code may refer to these classes by name only.
 *
 * <p>Imports {@code transport} and {@code transport.ib}.
 */
@Experimental
package io.fluxccl.transport.ib.disni;

import io.fluxccl.Experimental;

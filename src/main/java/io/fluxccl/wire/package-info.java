// SPDX-License-Identifier: Apache-2.0
/**
 * The one reader and writer of the library's own wire formats: little-endian, bounds-checked,
 * versioned. Also a view of raw memory as bytes, and the kernel's tables of sockets. Imports only
 * the root package.
 */
@Experimental
package io.fluxccl.wire;

import io.fluxccl.Experimental;

// SPDX-License-Identifier: Apache-2.0
/**
 * Base classes for threads, shared objects and closing: the agent thread, the spin policy, use
 * counts and the lifecycle. Imports only the root package.
 */
@Experimental
package io.fluxccl.concurrent;

import io.fluxccl.Experimental;

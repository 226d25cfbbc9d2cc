// SPDX-License-Identifier: Apache-2.0
/**
 * What everything that runs, is shared or closes is made of: the agent thread, the spin policy, use
 * counts and the lifecycle. Imports the root package only.
 */
@Experimental
package io.fluxccl.concurrent;

import io.fluxccl.Experimental;

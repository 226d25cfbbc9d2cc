// SPDX-License-Identifier: Apache-2.0
/**
 * All-pairs all-reduce built from connections, semaphores and channels, once by the host and once
 * by kernels.
 */
package io.fluxccl.samples.allpairs;

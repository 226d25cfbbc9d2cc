// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.cudaipc;

import io.fluxccl.testing.RequiresGpus;

/** Each rank in a process of its own, on GPUs. */
@RequiresGpus
class CudaIpcProcessTest extends CudaIpcProcessContract {}

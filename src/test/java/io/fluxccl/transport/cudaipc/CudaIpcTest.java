// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.cudaipc;

import io.fluxccl.testing.RequiresGpus;

/** Both ranks in this process, on GPUs. */
@RequiresGpus
class CudaIpcTest extends CudaIpcContract {}

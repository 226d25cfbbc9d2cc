// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.cudaipc;

import io.fluxccl.testing.FakeCuda;

/** Both ranks in this process, on fake GPUs. */
@FakeCuda
class CudaIpcFakeTest extends CudaIpcContract {}

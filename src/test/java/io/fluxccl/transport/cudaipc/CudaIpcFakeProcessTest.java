// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.cudaipc;

import io.fluxccl.testing.FakeCuda;

/** Each rank in a process of its own, on fake GPUs. */
@FakeCuda
class CudaIpcFakeProcessTest extends CudaIpcProcessContract {}

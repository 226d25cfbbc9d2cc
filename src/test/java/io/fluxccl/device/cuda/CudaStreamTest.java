// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import io.fluxccl.testing.RequiresGpus;

@RequiresGpus
class CudaStreamTest extends CudaStreamContract {}

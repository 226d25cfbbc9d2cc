package io.fluxccl.device.cuda;

import io.fluxccl.testing.RequiresGpus;

@RequiresGpus
class CudaGraphTest extends CudaGraphContract {}

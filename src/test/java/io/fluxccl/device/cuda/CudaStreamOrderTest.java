package io.fluxccl.device.cuda;

import io.fluxccl.testing.RequiresGpus;

@RequiresGpus
class CudaStreamOrderTest extends CudaStreamOrderContract {}

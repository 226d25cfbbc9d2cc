package io.fluxccl.device.cuda;

import io.fluxccl.testing.RequiresGpus;

@RequiresGpus
class WrappedStreamTest extends WrappedStreamContract {}

package io.fluxccl.device.cuda;

import io.fluxccl.testing.FakeCuda;

@FakeCuda
class WrappedStreamFakeTest extends WrappedStreamContract {}

package io.fluxccl.device.cuda;

import io.fluxccl.testing.RequiresGpus;

@RequiresGpus
class DmaBufTest extends DmaBufContract {
  DmaBufTest() {
    super("dmabuf");
  }
}

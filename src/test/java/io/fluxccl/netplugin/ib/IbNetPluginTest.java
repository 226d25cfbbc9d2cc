package io.fluxccl.netplugin.ib;

import io.fluxccl.testing.RequiresRdma;

/** Over the queue pairs of this machine's first RDMA device. */
@RequiresRdma
class IbNetPluginTest extends IbNetPluginContract {
  @Override
  IbNetPlugin open(IbNetOptions options) {
    return new IbNetPlugin(options);
  }
}

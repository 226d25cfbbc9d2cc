// SPDX-License-Identifier: Apache-2.0
#include <fluxccl/fluxccl.cuh>

// Multiplies this rank's numbers, puts them after the peer's own numbers, and waits for those of
// the peer. One block; came: 1 when they have arrived, 2 if the communicator was aborted.
extern "C" __global__ void scaleAndSend(fluxccl::SmChannel peer, float* mine, int count,
                                        float factor, int* came) {
  for (int i = threadIdx.x; i < count; i += blockDim.x) {
    mine[i] *= factor;
  }
  __syncthreads();  // a thread puts data that another one has computed
  const unsigned bytes = count * sizeof(float);
  peer.put(bytes, 0, bytes, threadIdx.x, blockDim.x);
  __syncthreads();  // one thread signals for all
  if (threadIdx.x == 0) {
    peer.signal();
    *came = peer.wait() ? 1 : 2;
  }
}

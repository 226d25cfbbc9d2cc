// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import io.fluxccl.InvalidUsage;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import jcuda.driver.CUresult;
import jcuda.driver.JCudaDriver;

/**
 * The GPUs whose memory a device's kernels may reach. Their contexts are kept until the device is
 * closed: the access ends with either. Thread-safe.
 */
final class PeerAccess {
  private final PrimaryContext context;
  private final Map<Integer, PrimaryContext> peers = new ConcurrentHashMap<>();
  private boolean closed; // guarded by this

  PeerAccess(PrimaryContext context) {
    this.context = context;
  }

  /** Returns whether kernels can use addresses of that GPU's plain memory. */
  boolean isEnabled(int other) {
    return other == context.ordinal || peers.containsKey(other);
  }

  /** Implements {@link CudaDevice#enablePeerAccess}. */
  synchronized void enable(int other) {
    if (closed || isEnabled(other)) {
      return;
    }
    PrimaryContext peer = PrimaryContext.retain(other);
    try {
      if (!CudaDriver.canReach(context.ordinal, other)) {
        throw unreachable(other, peer.pciBusId);
      }
      context.makeCurrent();
      int result = JCudaDriver.cuCtxEnablePeerAccess(peer.handle, 0);
      if (result != CUresult.CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) {
        context.check(result, "cuCtxEnablePeerAccess(GPU " + other + ")");
      }
    } catch (RuntimeException | Error e) {
      peer.release();
      throw e;
    }
    peers.put(other, peer);
  }

  /** Implements {@link CudaDevice#requireReachable}. */
  void requireReachable(String otherPciBusId) {
    for (int other = 0; other < CudaDriver.count(); other++) {
      if (CudaDriver.pciBusId(other).equals(otherPciBusId)
          && !CudaDriver.canReach(context.ordinal, other)) {
        throw unreachable(other, otherPciBusId);
      }
    }
  }

  private InvalidUsage unreachable(int other, String pciBusId) {
    return InvalidUsage.of(
        "%s can't reach memory of GPU %s (%s): no peer access between them"
            + " (nvidia-smi topo -p2p r); use ETHERNET",
        context, other, pciBusId);
  }

  synchronized void close() {
    closed = true;
    peers.values().forEach(PrimaryContext::release);
    peers.clear();
  }
}

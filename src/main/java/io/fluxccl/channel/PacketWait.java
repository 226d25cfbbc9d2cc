package io.fluxccl.channel;

import io.fluxccl.device.host.HostMemory;
import io.fluxccl.device.host.SpinWait;

/** Waiting for a packet that is not there yet. */
final class PacketWait {
  private PacketWait() {}

  /** True when the packet carries the flag; false when the job was aborted. */
  static boolean await(long address, int flag, long abortAddress, int peer) {
    int step = 0;
    while ((int) (HostMemory.getLongOpaque(address) >>> 32) != flag) {
      step = SpinWait.step(step, abortAddress, peer);
      if (step < 0) {
        return false;
      }
    }
    return true;
  }
}

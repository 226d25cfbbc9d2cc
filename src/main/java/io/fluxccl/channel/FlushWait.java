package io.fluxccl.channel;

import io.fluxccl.device.host.HostMemory;
import io.fluxccl.device.host.SpinWait;

/** Waiting for a flush word of {@link ProxyChannelDescriptor}. */
final class FlushWait {
  private FlushWait() {}

  /**
   * True when the flush at that ring position is done; false when the channel failed or the job was
   * aborted.
   */
  static boolean await(long flushWord, long position, long abortAddress, int peer) {
    int step = 0;
    while (true) {
      // Pairs with the releases in FlushTracker.
      long done = HostMemory.getLongAcquire(flushWord);
      if (done > position) {
        return true;
      }
      step = done < 0 ? SpinWait.ABORTED : SpinWait.step(step, abortAddress, peer);
      if (step < 0) {
        return false;
      }
    }
  }
}

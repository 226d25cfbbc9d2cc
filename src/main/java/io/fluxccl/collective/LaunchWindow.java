package io.fluxccl.collective;

import io.fluxccl.device.DeviceStream;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/**
 * Bounds how many launches of a rank are in flight where several ranks of a process share a GPU.
 * The driver's queue holds about a thousand; who launches one more waits inside the driver, and may
 * there hold up the other ranks, whose launches it waits for. Here it waits outside of it. Used by
 * one thread at a time.
 */
final class LaunchWindow {
  private static final int SIZE = 128;
  private static final long MOST_MILLIS = 1000;

  private final boolean bounded;
  private CompletableFuture<Void> earlier = CompletableFuture.completedFuture(null);
  private int launches;

  /**
   * A window for one rank.
   *
   * @param ranksPerGpu how many ranks of this process share its GPU
   */
  LaunchWindow(int ranksPerGpu) {
    this.bounded = ranksPerGpu > 1;
  }

  /** To be called before each launch: waits while two windows' launches are in flight. */
  void enter(DeviceStream stream) {
    if (bounded && ++launches % SIZE == 0) {
      // One thread may launch for all ranks, and would wait for itself: so not for ever.
      earlier
          .copy()
          .completeOnTimeout(null, MOST_MILLIS, TimeUnit.MILLISECONDS)
          .handle((done, failure) -> null)
          .join();
      earlier = stream.completion();
    }
  }
}

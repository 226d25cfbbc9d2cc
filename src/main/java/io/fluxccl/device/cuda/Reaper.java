package io.fluxccl.device.cuda;

import io.fluxccl.DeviceFailure;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Frees, on a thread of its own: the driver may wait for running kernels before it lets go of
 * memory, and whoever lets go must not, because the kernel may wait for him. The thread ends when
 * there was nothing to do for a second.
 */
final class Reaper {
  private static final Logger LOG = LoggerFactory.getLogger(Reaper.class);

  private final ThreadPoolExecutor executor;

  Reaper(int gpu) {
    executor =
        new ThreadPoolExecutor(
            1,
            1,
            1,
            TimeUnit.SECONDS,
            new LinkedBlockingQueue<>(),
            task -> {
              Thread thread = new Thread(task, "fluxccl-reaper-" + gpu);
              thread.setDaemon(true);
              return thread;
            });
    executor.allowCoreThreadTimeOut(true);
  }

  /** Runs it soon, behind all that was given before. What it throws is logged. */
  void execute(Runnable free) {
    executor.execute(
        () -> {
          try {
            free.run();
          } catch (DeviceFailure e) {
            if (CudaError.isSticky(e.status())) {
              LOG.debug("memory goes with the GPU's context, which is beyond use", e);
            } else {
              LOG.warn("letting go of GPU memory failed", e);
            }
          } catch (RuntimeException | Error e) {
            LOG.warn("letting go of GPU memory failed", e);
          }
        });
  }
}

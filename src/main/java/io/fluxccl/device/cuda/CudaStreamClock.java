// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import io.fluxccl.device.StreamClock;
import jcuda.driver.CUevent;
import jcuda.driver.CUevent_flags;
import jcuda.driver.CUresult;
import jcuda.driver.JCudaDriver;

/**
 * A GPU's clock, by the driver's events, which tell the time since another event. When that one
 * happened is not known, so times are put as early as they can have been: an event behind its
 * enqueueing, and none behind the moment at which the host saw it, should the clocks drift apart.
 */
final class CudaStreamClock implements StreamClock {
  /** The driver gives a float of milliseconds, which a second later has steps of 60 ns. */
  private static final double LONGEST_NS = 1e9;

  private static final double NANOS_PER_MILLI = 1e6;

  private final CudaStream stream;

  // All guarded by this.
  private final CUevent[] events;
  private final float[] millis = new float[1];
  private boolean closed;

  /** When each was enqueued. */
  private final long[] enqueuedNs;

  /** The event from which the others count, and its time. */
  private CUevent base;

  private double baseNs;

  CudaStreamClock(CudaStream stream, int points) {
    this.stream = stream;
    this.events = new CUevent[points];
    this.enqueuedNs = new long[points];
    stream.context.retain();
  }

  @Override
  public void mark(int point) {
    CUevent event = eventFor(point);
    // Without the lock, for which the completion thread may wait: a full stream holds this call up.
    if (event != null) {
      stream.recordTime(event);
    }
  }

  private synchronized CUevent eventFor(int point) {
    if (closed) {
      return null;
    }
    if (events[point] == null) {
      stream.context.makeCurrent();
      CUevent made = new CUevent();
      stream.check(
          JCudaDriver.cuEventCreate(made, CUevent_flags.CU_EVENT_DEFAULT), "cuEventCreate");
      events[point] = made;
    }
    enqueuedNs[point] = System.nanoTime();
    return events[point];
  }

  @Override
  public synchronized boolean read(int from, int to, long seenNs, long[] times) {
    if (closed || stream.context.tryMakeCurrent() != CUresult.CUDA_SUCCESS) {
      return false;
    }
    boolean first = base == null;
    double since = first ? 0 : elapsedNs(base, events[from]);
    double took = elapsedNs(events[from], events[to]);
    if (Double.isNaN(since + took)) {
      return false;
    }
    double begun = first ? enqueuedNs[from] : Math.max(baseNs + since, enqueuedNs[from]);
    begun = Math.min(begun, seenNs - took);
    baseNs = begun - since;
    if (first || since > LONGEST_NS) {
      CUevent old = base;
      base = events[from];
      events[from] = old;
      baseNs = begun;
    }
    times[0] = Math.round(begun);
    times[1] = Math.round(begun + took);
    return true;
  }

  private double elapsedNs(CUevent from, CUevent to) {
    int result = JCudaDriver.cuEventElapsedTime(millis, from, to);
    return result == CUresult.CUDA_SUCCESS ? millis[0] * NANOS_PER_MILLI : Double.NaN;
  }

  @Override
  public synchronized void close() {
    if (closed) {
      return;
    }
    closed = true;
    // Fails once a kernel failed; then the events are gone with the context.
    if (stream.context.tryMakeCurrent() == CUresult.CUDA_SUCCESS) {
      for (CUevent each : events) {
        destroy(each);
      }
      destroy(base);
    }
    stream.context.release();
  }

  private static void destroy(CUevent event) {
    if (event != null) {
      JCudaDriver.cuEventDestroy(event);
    }
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import io.fluxccl.device.StreamClock;
import jcuda.driver.CUevent;
import jcuda.driver.CUevent_flags;
import jcuda.driver.CUresult;
import jcuda.driver.JCudaDriver;

/**
 * A GPU's clock, based on driver events, which measure only the time between two events. The host
 * time of the base event is therefore estimated as early as possible. If the clocks drift apart,
 * each time is kept between the enqueue of its event and the moment at which the host saw the
 * completion.
 */
final class CudaStreamClock implements StreamClock {
  /**
   * The driver returns milliseconds as a float, which has a resolution of 60 ns after one second.
   */
  private static final double LONGEST_NS = 1e9;

  private static final double NANOS_PER_MILLI = 1e6;

  private final CudaStream stream;

  // All guarded by this.
  private final CUevent[] events;
  private final float[] millis = new float[1];
  private boolean closed;

  /** The host time of each event's enqueue. */
  private final long[] enqueuedNs;

  /** The base event, and its host time. */
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
    // Without this object's lock, which the completion thread also takes: a full stream blocks this
    // call.
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
      events[point] = stream.context.createEvent(CUevent_flags.CU_EVENT_DEFAULT);
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
    // Fails after a kernel has failed; the events are then lost with the context.
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

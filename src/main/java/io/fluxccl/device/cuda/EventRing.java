// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import io.fluxccl.completion.Milestones;
import jcuda.driver.CUevent;
import jcuda.driver.CUevent_flags;
import jcuda.driver.CUresult;
import jcuda.driver.CUstream;
import jcuda.driver.JCudaDriver;

/**
 * Completions of a stream that has more to do behind them. A stored number costs the stream some 3
 * us, for its barrier, in which what comes next can't begin; an event costs it nothing, and its
 * poller a call of the driver. So an event is better as long as later work would have to wait for
 * the barrier.
 *
 * <p>One thread at a time records, another one polls; neither allocates once the events are made,
 * nor takes a lock of this library.
 */
final class EventRing implements Milestones {
  private static final int CAPACITY = 256;

  private final PrimaryContext context;
  private final CUevent[] events = new CUevent[CAPACITY];
  private final long[] sequences = new long[CAPACITY];

  /** How many were recorded. Written by the recording thread, behind the event and its number. */
  private volatile long recorded;

  /** How many of them were found reached. Written by the polling thread. */
  private volatile long passed;

  /** Used by the polling thread. */
  private long reached;

  EventRing(PrimaryContext context) {
    this.context = context;
  }

  /** Returns whether another one can be recorded. */
  boolean hasRoom() {
    return recorded - passed < CAPACITY;
  }

  /**
   * Records that a number is reached when the work enqueued so far is done. Only where there is
   * room; the context is current.
   *
   * @return what the driver says
   */
  int record(CUstream stream, long sequence) {
    int slot = (int) (recorded % CAPACITY);
    if (events[slot] == null) {
      CUevent made = new CUevent();
      int result = JCudaDriver.cuEventCreate(made, CUevent_flags.CU_EVENT_DISABLE_TIMING);
      if (result != CUresult.CUDA_SUCCESS) {
        return result;
      }
      events[slot] = made;
    }
    sequences[slot] = sequence;
    int result = JCudaDriver.cuEventRecord(events[slot], stream);
    if (result == CUresult.CUDA_SUCCESS) {
      recorded++;
    }
    return result;
  }

  /** Returns whether the last one recorded is of that number and reached. Any thread. */
  boolean hasReachedLast(long sequence) {
    int last = (int) ((recorded + CAPACITY - 1) % CAPACITY);
    return recorded > 0
        && sequences[last] == sequence
        && CudaError.query(events[last]) == CUresult.CUDA_SUCCESS;
  }

  @Override
  public long reached() {
    long next = passed;
    long end = recorded;
    if (next == end || context.tryMakeCurrent() != CUresult.CUDA_SUCCESS) {
      return reached;
    }
    while (next < end) {
      int slot = (int) (next % CAPACITY);
      if (CudaError.query(events[slot]) != CUresult.CUDA_SUCCESS) {
        break; // not yet; or never, which the check of the stream's health finds
      }
      reached = sequences[slot];
      next++;
    }
    passed = next;
    return reached;
  }

  /** Destroys them, once the stream's work is done. */
  void destroy() {
    for (CUevent event : events) {
      if (event != null) {
        JCudaDriver.cuEventDestroy(event);
      }
    }
  }
}

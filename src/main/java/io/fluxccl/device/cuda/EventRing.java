// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import io.fluxccl.completion.ProgressSource;
import jcuda.driver.CUevent;
import jcuda.driver.CUevent_flags;
import jcuda.driver.CUresult;
import jcuda.driver.CUstream;
import jcuda.driver.JCudaDriver;

/**
 * Reports completions by driver events, for a stream that still has work. A stored number needs a
 * barrier, which delays the stream's next work by some 3 us. An event does not delay the stream,
 * but each poll of it is a driver call.
 *
 * <p>One thread at a time records, another one polls. Neither takes a lock of this library, and
 * neither allocates after all events have been created.
 */
final class EventRing implements ProgressSource {
  private static final int CAPACITY = 256;

  private final PrimaryContext context;
  private final CUevent[] events = new CUevent[CAPACITY];
  private final long[] sequences = new long[CAPACITY];

  /**
   * Number of recorded completions. The recording thread writes it after the event and its number.
   */
  private volatile long recorded;

  /** Number of completions found reached. Written by the polling thread. */
  private volatile long passed;

  /** The last number found reached. Used by the polling thread. */
  private long reached;

  EventRing(PrimaryContext context) {
    this.context = context;
  }

  /** Returns whether another one can be recorded. */
  boolean hasRoom() {
    return recorded - passed < CAPACITY;
  }

  /**
   * Records that a number is reached when the work enqueued so far is done. Requires a free slot
   * and a current context.
   *
   * @return the driver's result
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

  /** Returns whether the last recorded completion has that number and is reached. Any thread. */
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
        break; // not done, or failed, which the check of the stream's health detects
      }
      reached = sequences[slot];
      next++;
    }
    passed = next;
    return reached;
  }

  /** Destroys the events, once the stream's work is done. */
  void destroy() {
    for (CUevent event : events) {
      if (event != null) {
        JCudaDriver.cuEventDestroy(event);
      }
    }
  }
}

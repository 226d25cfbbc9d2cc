// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.Experimental;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceHandle;
import java.util.List;

/**
 * An operation of a {@linkplain FusedAllReduce fused all-reduce} on each row of the sum, before the
 * row leaves the registers of the kernel that has reduced it. Immutable and reusable.
 */
@Experimental
public sealed interface Epilogue permits Epilogue.OnGpus, HostEpilogue {
  /** Returns all buffers that it reads or writes; a captured pipeline keeps them. */
  List<DeviceBuffer> buffers();

  /** Returns a text of the properties that must be the same on every rank. */
  String signature();

  /**
   * Refuses buffers that are too small for a call, or of another device.
   *
   * @param call that has this epilogue
   * @param check compares a buffer's size
   */
  void check(FusedAllReduce call, BufferCheck check);

  /** One that has kernels for GPUs. */
  sealed interface OnGpus extends Epilogue permits AddRmsNorm, CustomEpilogue {
    /** Returns its kernels. */
    EpilogueKernels kernels();

    /** Returns the structure that they get, as it is at this moment. */
    DeviceHandle argument();
  }

  /** Refuses a buffer. */
  interface BufferCheck {
    /**
     * Refuses a buffer that is closed, of another device, too small, or not aligned.
     *
     * @param what it is, for the message
     * @param buffer the buffer
     * @param bytes that it must have
     * @param alignment of its address
     */
    void require(String what, DeviceBuffer buffer, long bytes, int alignment);
  }
}

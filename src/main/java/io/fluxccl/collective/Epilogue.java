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
   * Refuses buffers that are too small for a call, of another device, or overlap others.
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

  /** Refuses buffers of a call. */
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

    /**
     * Refuses the call.
     *
     * @param problem with a remedy; the message begins with the call and the rank
     * @throws io.fluxccl.InvalidUsage always
     */
    void refuse(String problem);
  }
}

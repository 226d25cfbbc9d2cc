// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import io.fluxccl.Deadline;
import io.fluxccl.NativeLibrary;
import io.fluxccl.Text;
import java.time.Duration;
import java.util.Arrays;
import jcuda.driver.CUresult;

/**
 * A mapping of VMM memory in this process. The memory exists while any process maps it, also after
 * its owner has ended.
 *
 * @param context used for driver calls
 * @param address of its first byte
 * @param size bytes
 * @param pieces of equal size, each a handle of the driver
 */
record VmmMapping(PrimaryContext context, long address, long size, int pieces) {
  /** The owner answers without its GPU, but a suspended process does not answer at all. */
  private static final Duration ANSWER_TIMEOUT = Duration.ofSeconds(5);

  /**
   * Maps another process's memory, for the kernels of one GPU. Blocks while it asks the owner.
   *
   * @throws io.fluxccl.DeviceFailure if the owner has ended or does not answer, or the driver
   *     refuses
   */
  static VmmMapping of(PrimaryContext context, CudaMemoryName name) {
    NativeLibrary.require("mapping " + name);
    long[] handles = new long[name.pieces()];
    int imported = 0;
    try {
      for (; imported < handles.length; imported++) {
        handles[imported] = importPiece(context, name, imported);
      }
      return map(context, handles, name.size(), new int[] {context.ordinal});
    } finally {
      for (int i = 0; i < imported; i++) {
        VmmCalls.release(handles[i]); // the mapping keeps the memory
      }
    }
  }

  private static long importPiece(PrimaryContext context, CudaMemoryName name, int piece) {
    int descriptor = requestDescriptor(name, piece);
    long[] handle = new long[1];
    try {
      context.makeCurrent();
      context.check(
          VmmCalls.importDescriptor(descriptor, handle),
          Text.of(
              "cuMemImportFromShareableHandle(%s), whose GPU must be one that this process"
                  + " sees (CUDA_VISIBLE_DEVICES),",
              name));
      return handle[0];
    } finally {
      DescriptorCalls.close(descriptor);
    }
  }

  /** Requests the descriptor of a piece or a pool from the owner. The caller closes it. */
  static int requestDescriptor(CudaMemoryName name, int piece) {
    byte[] first = Arrays.copyOf(name.secret(), DescriptorServer.TOKEN_LENGTH);
    byte[] token = DescriptorServer.tokenOf(first, piece);
    return DescriptorClient.request(name.socket(), token, Deadline.after(ANSWER_TIMEOUT));
  }

  /**
   * Maps pieces of memory at contiguous addresses.
   *
   * @param handles of pieces of equal size
   * @param size of all pieces together
   * @param devices that may read and write it
   * @throws io.fluxccl.DeviceFailure if the driver refuses; nothing stays mapped
   */
  static VmmMapping map(PrimaryContext context, long[] handles, long size, int[] devices) {
    long[] address = new long[1];
    context.check(VmmCalls.reserve(size, 0, address), "cuMemAddressReserve(" + size + ")");
    long piece = size / handles.length;
    int mapped = 0;
    try {
      for (; mapped < handles.length; mapped++) {
        int result = VmmCalls.map(address[0] + mapped * piece, piece, handles[mapped]);
        context.check(result, "cuMemMap(" + piece + ")");
        result = VmmCalls.setAccess(address[0] + mapped * piece, piece, devices);
        if (result != CUresult.CUDA_SUCCESS) {
          VmmCalls.unmap(address[0] + mapped * piece, piece);
          throw CudaError.of(
              result,
              context.ordinal,
              "cuMemSetAccess(" + piece + ", for GPUs " + Arrays.toString(devices) + ")");
        }
      }
      return new VmmMapping(context, address[0], size, handles.length);
    } catch (RuntimeException | Error e) {
      for (int i = 0; i < mapped; i++) {
        VmmCalls.unmap(address[0] + i * piece, piece);
      }
      VmmCalls.free(address[0], size);
      throw e;
    }
  }

  /** Unmaps the memory and frees the addresses; the context is current. */
  void unmap() {
    long piece = size / pieces;
    int result = CUresult.CUDA_SUCCESS;
    for (int i = 0; i < pieces; i++) {
      int unmapped = VmmCalls.unmap(address + i * piece, piece);
      result = unmapped == CUresult.CUDA_SUCCESS ? result : unmapped;
    }
    int freed = VmmCalls.free(address, size);
    context.check(result, "cuMemUnmap(" + size + ")");
    context.check(freed, "cuMemAddressFree(" + size + ")");
  }
}

package io.fluxccl.device.cuda;

import io.fluxccl.Deadline;
import io.fluxccl.NativeLibrary;
import java.time.Duration;
import jcuda.driver.CUresult;

/**
 * Memory behind addresses of this process. The memory lives while anything maps it, in whatever
 * process: it survives the end of its owner.
 *
 * @param context used for the calls
 * @param address of its first byte
 * @param size bytes
 */
record VmmMapping(PrimaryContext context, long address, long size) {
  /** The owner's answer needs no GPU; a process that is stopped does not answer at all. */
  private static final Duration ANSWER_TIMEOUT = Duration.ofSeconds(5);

  /**
   * Maps another process's memory, for the kernels of one GPU. Blocks while it asks the owner.
   *
   * @throws io.fluxccl.DeviceFailure if the owner is gone or does not answer, or the driver refuses
   */
  static VmmMapping of(PrimaryContext context, CudaMemoryName name) {
    NativeLibrary.require("mapping " + name);
    int descriptor =
        DescriptorClient.request(name.socket(), name.secret(), Deadline.after(ANSWER_TIMEOUT));
    long[] handle = new long[1];
    try {
      context.makeCurrent();
      context.check(
          VmmCalls.importDescriptor(descriptor, handle),
          String.format(
              "cuMemImportFromShareableHandle(%s), whose GPU must be one that this process"
                  + " sees (CUDA_VISIBLE_DEVICES),",
              name));
    } finally {
      DescriptorCalls.close(descriptor);
    }
    try {
      return map(context, handle[0], name.size(), new int[] {context.ordinal});
    } finally {
      VmmCalls.release(handle[0]); // what is mapped stays
    }
  }

  /**
   * Maps memory.
   *
   * @param handle of memory of that size
   * @param devices that may read and write it
   * @throws io.fluxccl.DeviceFailure if the driver refuses; nothing is left then
   */
  static VmmMapping map(PrimaryContext context, long handle, long size, int[] devices) {
    long[] address = new long[1];
    context.check(VmmCalls.reserve(size, 0, address), "cuMemAddressReserve(" + size + ")");
    int result = VmmCalls.map(address[0], size, handle);
    if (result != CUresult.CUDA_SUCCESS) {
      VmmCalls.free(address[0], size);
      throw CudaError.of(result, context.ordinal, "cuMemMap(" + size + ")");
    }
    VmmMapping mapping = new VmmMapping(context, address[0], size);
    result = VmmCalls.setAccess(address[0], size, devices);
    if (result != CUresult.CUDA_SUCCESS) {
      mapping.unmap();
      throw CudaError.of(
          result,
          context.ordinal,
          "cuMemSetAccess(" + size + ", for GPUs " + java.util.Arrays.toString(devices) + ")");
    }
    return mapping;
  }

  /** Takes the memory away from the addresses and gives those back; the context is current. */
  void unmap() {
    int result = VmmCalls.unmap(address, size);
    int freed = VmmCalls.free(address, size);
    context.check(result, "cuMemUnmap(" + size + ")");
    context.check(freed, "cuMemAddressFree(" + size + ")");
  }
}

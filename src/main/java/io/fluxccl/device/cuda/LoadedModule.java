// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import io.fluxccl.InvalidUsage;
import io.fluxccl.NativeLibrary;
import java.nio.charset.StandardCharsets;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import jcuda.driver.CUfunction;
import jcuda.driver.CUfunction_attribute;
import jcuda.driver.CUmodule;
import jcuda.driver.CUresult;
import jcuda.driver.JCudaDriver;

/** A module in one context, all of it on the GPU. Thread-safe. */
final class LoadedModule {
  /** Results that are caused by the image, not by the device. */
  private static final Set<Integer> OF_THE_IMAGE =
      Set.of(
          CUresult.CUDA_ERROR_INVALID_IMAGE,
          CUresult.CUDA_ERROR_NO_BINARY_FOR_GPU,
          CUresult.CUDA_ERROR_INVALID_PTX,
          CUresult.CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
          CUresult.CUDA_ERROR_INVALID_SOURCE);

  private final PrimaryContext context;
  private final String name;
  final CUmodule handle;
  private final ConcurrentHashMap<String, Function> functions = new ConcurrentHashMap<>();

  private LoadedModule(PrimaryContext context, String name, CUmodule handle) {
    this.context = context;
    this.name = name;
    this.handle = handle;
  }

  /**
   * Loads an image.
   *
   * @throws InvalidUsage if this GPU and driver cannot run it
   * @throws io.fluxccl.DeviceFailure if the driver fails otherwise
   */
  static LoadedModule load(PrimaryContext context, String name, KernelImage image) {
    context.makeCurrent();
    CUmodule handle = new CUmodule();
    int result = JCudaDriver.cuModuleLoadData(handle, image.bytes());
    if (result != CUresult.CUDA_SUCCESS) {
      throw refused(context, name, image, result);
    }
    if (NativeLibrary.isAvailable()) {
      // Loading a function at its first launch could wait for a kernel that waits for that launch.
      result = FunctionCalls.loadAll(CudaPointer.valueOf(handle));
      if (result != CUresult.CUDA_SUCCESS && result != CUresult.CUDA_ERROR_NOT_SUPPORTED) {
        JCudaDriver.cuModuleUnload(handle);
        throw CudaError.of(result, context.ordinal, "cuFuncLoad(all of " + name + ")");
      }
    }
    return new LoadedModule(context, name, handle);
  }

  private static RuntimeException refused(
      PrimaryContext context, String name, KernelImage image, int result) {
    RuntimeException failure =
        CudaError.of(result, context.ordinal, "cuModuleLoadData(" + name + ")");
    if (!OF_THE_IMAGE.contains(result)) {
      return failure;
    }
    String log = "";
    if (image.isPtx() && NativeLibrary.isAvailable()) {
      log = new String(FunctionCalls.explain(image.bytes()), StandardCharsets.UTF_8).strip();
    }
    return new InvalidUsage(failure.getMessage() + (log.isEmpty() ? "" : "\n" + log), failure);
  }

  /**
   * Returns one of its kernels.
   *
   * @throws InvalidUsage if it has none of that name
   */
  Function function(String function) {
    Function known = functions.get(function);
    return known != null ? known : functions.computeIfAbsent(function, this::find);
  }

  private Function find(String function) {
    context.makeCurrent();
    CUfunction found = new CUfunction();
    int result = JCudaDriver.cuModuleGetFunction(found, handle, function);
    if (result == CUresult.CUDA_ERROR_NOT_FOUND) {
      throw InvalidUsage.of(
          "%s has no kernel %s; is it extern \"C\" __global__, and spelt like that?",
          name, function);
    }
    context.check(result, "cuModuleGetFunction(" + name + ", " + function + ")");
    return new Function(function, found);
  }

  /** A kernel of the module. Thread-safe. */
  final class Function {
    final CUfunction handle;
    final KernelSignature signature;
    private final String name;
    private int allowedShared; // guarded by this

    private Function(String name, CUfunction handle) {
      this.name = name;
      this.handle = handle;
      this.signature = KernelSignature.of(handle);
      this.allowedShared =
          attribute(CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
      context.reserveStack(attribute(CUfunction_attribute.CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES));
    }

    PrimaryContext context() {
      return context;
    }

    /** Returns an attribute of the function. The query also loads the function onto the device. */
    private int attribute(int attribute) {
      int[] value = new int[1];
      context.check(
          JCudaDriver.cuFuncGetAttribute(value, attribute, handle),
          "cuFuncGetAttribute(" + name + ", " + attribute + ")");
      return value[0];
    }

    /** Raises the limit of dynamic shared memory for launches. Never lowers it. */
    synchronized void allowShared(int bytes) {
      if (bytes > allowedShared) {
        context.makeCurrent();
        context.check(
            JCudaDriver.cuFuncSetAttribute(
                handle,
                CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                bytes),
            "cuFuncSetAttribute(" + name + ", " + bytes + " bytes of dynamic shared memory)");
        allowedShared = bytes;
      }
    }
  }
}

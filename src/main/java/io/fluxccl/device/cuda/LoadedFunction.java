package io.fluxccl.device.cuda;

import jcuda.driver.CUfunction;
import jcuda.driver.CUfunction_attribute;
import jcuda.driver.JCudaDriver;

/** A kernel in one context. Thread-safe. */
final class LoadedFunction {
  private final PrimaryContext context;
  private final String name;
  private final CUfunction handle;
  private final KernelSignature signature;
  private int allowedShared; // guarded by this

  LoadedFunction(PrimaryContext context, String name, CUfunction handle) {
    this.context = context;
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

  CUfunction handle() {
    return handle;
  }

  KernelSignature signature() {
    return signature;
  }

  /** Asking makes sure that the function is on the device, too. */
  private int attribute(int attribute) {
    int[] value = new int[1];
    context.check(
        JCudaDriver.cuFuncGetAttribute(value, attribute, handle),
        "cuFuncGetAttribute(" + name + ", " + attribute + ")");
    return value[0];
  }

  /** Lets launches have so much dynamic shared memory; never takes back what was allowed. */
  synchronized void allowShared(int bytes) {
    if (bytes > allowedShared) {
      context.makeCurrent();
      context.check(
          JCudaDriver.cuFuncSetAttribute(
              handle, CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes),
          "cuFuncSetAttribute(" + name + ", " + bytes + " bytes of dynamic shared memory)");
      allowedShared = bytes;
    }
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import jcuda.NativePointerObject;
import jcuda.Pointer;
import jcuda.driver.CUdeviceptr;
import jcuda.driver.CUstream;

/**
 * A mutable pointer for JCuda calls. JCuda's own pointers are immutable and can't be converted from
 * or to numbers. Not thread-safe.
 */
final class CudaPointer extends CUdeviceptr {
  private static final VarHandle NATIVE_POINTER =
      field(NativePointerObject.class, "nativePointer", long.class);

  private static final VarHandle BYTE_OFFSET = field(Pointer.class, "byteOffset", long.class);

  /** Returns access to a field of one of JCuda's classes that has no accessor. */
  static VarHandle field(Class<?> owner, String name, Class<?> type) {
    try {
      return MethodHandles.privateLookupIn(owner, MethodHandles.lookup())
          .findVarHandle(owner, name, type);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  /** Null. */
  CudaPointer() {}

  CudaPointer(long address) {
    set(address);
  }

  /** Sets the address and returns this. */
  CudaPointer set(long address) {
    NATIVE_POINTER.set((NativePointerObject) this, address);
    return this;
  }

  /** Sets the native value of a JCuda handle. */
  static void set(NativePointerObject handle, long value) {
    NATIVE_POINTER.set(handle, value);
  }

  /** Returns the address in a JCuda pointer; 0 for Java memory. */
  static long addressOf(Pointer pointer) {
    long start = valueOf(pointer);
    return start == 0 ? 0 : start + (long) BYTE_OFFSET.get(pointer);
  }

  /**
   * Returns a stream's handle. Avoids a widening conversion in the caller, whose class could then
   * not be loaded without JCuda.
   */
  static long handleOf(CUstream stream) {
    return valueOf(stream);
  }

  /** Returns the native value of a JCuda handle or pointer. */
  static long valueOf(NativePointerObject object) {
    return (long) NATIVE_POINTER.get(object);
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import jcuda.NativePointerObject;
import jcuda.Pointer;
import jcuda.driver.CUdeviceptr;
import jcuda.driver.CUstream;

/**
 * An address as JCuda takes it, and one that can be changed: JCuda's own pointers are immutable and
 * have no public way from or to a number. Not thread-safe.
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

  /** Makes it the given address, and gives itself. */
  CudaPointer set(long address) {
    NATIVE_POINTER.set((NativePointerObject) this, address);
    return this;
  }

  /** Makes any of JCuda's handles the given number. */
  static void set(NativePointerObject handle, long value) {
    NATIVE_POINTER.set(handle, value);
  }

  /** Returns the address that one of JCuda's pointers points to; 0 for memory of Java's. */
  static long addressOf(Pointer pointer) {
    long start = valueOf(pointer);
    return start == 0 ? 0 : start + (long) BYTE_OFFSET.get(pointer);
  }

  /**
   * Returns a stream's handle. Its caller can be loaded without JCuda, which a call that widens the
   * type could not.
   */
  static long handleOf(CUstream stream) {
    return valueOf(stream);
  }

  /** Returns what any of JCuda's handles and pointers holds. */
  static long valueOf(NativePointerObject object) {
    return (long) NATIVE_POINTER.get(object);
  }
}

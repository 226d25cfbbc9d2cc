// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import io.fluxccl.InvalidUsage;
import io.fluxccl.device.AbortFlag;
import io.fluxccl.device.DeviceHandle;
import io.fluxccl.device.Kernel;
import io.fluxccl.device.KernelArgs;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import org.agrona.BufferUtil;
import org.agrona.concurrent.UnsafeBuffer;

/**
 * The arguments of a launch in the driver's format: an array of addresses of values. Each launch
 * reuses the memory, which the driver has copied when the launch returns. Not thread-safe.
 */
final class KernelParameters {
  /** The driver's limit for the total size. */
  private static final int MAX_LENGTH = 32764;

  private static final int ALIGNMENT = 16;
  private static final int INITIAL_LENGTH = 1024;

  private final CudaDevice device;
  private final CudaPointer pointer = new CudaPointer();
  private UnsafeBuffer values = allocate(INITIAL_LENGTH);
  private UnsafeBuffer addresses = allocate(INITIAL_LENGTH);

  KernelParameters(CudaDevice device) {
    this.device = device;
  }

  private static UnsafeBuffer allocate(int length) {
    return new UnsafeBuffer(BufferUtil.allocateDirectAligned(length, ALIGNMENT));
  }

  /**
   * Packs the arguments of a launch.
   *
   * @param signature the kernel's parameters
   * @return the argument for {@code cuLaunchKernel}; valid until the next call
   * @throws InvalidUsage if an argument can't be passed to kernels of this device, or the arguments
   *     do not match the parameters
   */
  CudaPointer pack(Kernel kernel, CudaModule.Signature signature, KernelArgs args) {
    int count = args.count();
    signature.checkCount(kernel.name(), args);
    if (count * Long.BYTES > addresses.capacity()) {
      addresses = allocate(count * Long.BYTES);
    }
    int offset = 0;
    for (int i = 0; i < count; i++) {
      Object value = args.get(i, Object.class);
      int length = lengthOf(value);
      signature.checkLength(kernel.name(), args, i, length);
      if (length > MAX_LENGTH - offset) {
        throw InvalidUsage.of(
            "arguments 0 to %s of kernel %s have more than the %s bytes that the driver takes;"
                + " pass the address of a buffer",
            i, kernel.name(), MAX_LENGTH);
      }
      if (length > values.capacity() - offset) {
        values = allocate(MAX_LENGTH);
        return pack(kernel, signature, args); // all addresses have changed
      }
      addresses.putLong(i * Long.BYTES, values.addressOffset() + offset);
      put(offset, kernel, i, value);
      offset += length + ALIGNMENT - 1 & -ALIGNMENT;
    }
    return pointer.set(addresses.addressOffset());
  }

  private static int lengthOf(Object value) {
    if (value instanceof DeviceHandle handle) {
      return handle.handleLength();
    } else if (value instanceof byte[] bytes) {
      return bytes.length;
    } else if (value instanceof ByteBuffer bytes) {
      return bytes.remaining();
    }
    return value instanceof Integer || value instanceof Float ? Integer.BYTES : Long.BYTES;
  }

  private void put(int offset, Kernel kernel, int index, Object value) {
    if (value instanceof Integer number) {
      values.putInt(offset, number, ByteOrder.LITTLE_ENDIAN);
    } else if (value instanceof Long number) {
      values.putLong(offset, number, ByteOrder.LITTLE_ENDIAN);
    } else if (value instanceof Float number) {
      values.putFloat(offset, number, ByteOrder.LITTLE_ENDIAN);
    } else if (value instanceof Double number) {
      values.putDouble(offset, number, ByteOrder.LITTLE_ENDIAN);
    } else if (value instanceof DeviceHandle handle) {
      handle.writeHandle(values, offset);
    } else if (value instanceof byte[] bytes) {
      values.putBytes(offset, bytes);
    } else if (value instanceof ByteBuffer bytes) {
      values.putBytes(offset, bytes, bytes.position(), bytes.remaining());
    } else {
      values.putLong(offset, addressOf(kernel, index, value), ByteOrder.LITTLE_ENDIAN);
    }
  }

  private long addressOf(Kernel kernel, int index, Object value) {
    if (value instanceof AbortFlag flag) {
      return flag.deviceAddress();
    }
    if (value instanceof CudaPinnedBuffer buffer) {
      return buffer.deviceAddress();
    }
    if (!(value instanceof CudaBuffer buffer)) {
      throw refused(
          kernel,
          index,
          "is a " + value.getClass().getSimpleName() + ", which no GPU reaches: " + value);
    }
    int owner = buffer.device().index();
    if (!device.reaches(owner)) {
      throw refused(
          kernel,
          index,
          "is memory of GPU " + owner + "; call enablePeerAccess(" + owner + ") before");
    }
    return buffer.address();
  }

  private static InvalidUsage refused(Kernel kernel, int index, String why) {
    return InvalidUsage.of(
        "argument %s of kernel %s %s; a kernel on a GPU takes int, long, float, double, buffers of"
            + " GPUs, abort flags, device handles, and structures as byte[] or ByteBuffer",
        index, kernel.name(), why);
  }
}

package io.fluxccl.device.cuda;

import io.fluxccl.InvalidUsage;
import io.fluxccl.device.AbortFlag;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceHandle;
import io.fluxccl.device.Kernel;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.PinnedBuffer;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import org.agrona.BufferUtil;
import org.agrona.concurrent.UnsafeBuffer;

/**
 * The arguments of a launch as the driver takes them: an array of addresses, each of one value.
 * Memory that is used again for each launch; the driver has copied it when the launch returns. Not
 * thread-safe.
 */
final class KernelParameters {
  /** The most that the driver takes, all together. */
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
   * Packs them.
   *
   * @param signature what the kernel takes
   * @return what {@code cuLaunchKernel} takes; valid until the next call
   * @throws InvalidUsage if one of them is nothing that this device's kernels can be given, or they
   *     are not what the kernel takes
   */
  CudaPointer pack(Kernel kernel, KernelSignature signature, KernelArgs args) {
    int count = args.count();
    signature.checkCount(kernel.name(), args);
    long length = 0;
    for (int i = 0; i < count; i++) {
      int valueLength = lengthOf(kernel, i, args.get(i, Object.class));
      signature.checkLength(kernel.name(), args, i, valueLength);
      length += align(valueLength);
    }
    if (length > MAX_LENGTH) {
      throw InvalidUsage.of(
          "%s bytes of arguments for kernel %s; the driver takes at most %s, pass the"
              + " address of a buffer",
          length, kernel.name(), MAX_LENGTH);
    }
    if (length > values.capacity()) {
      values = allocate(MAX_LENGTH);
    }
    if (count * Long.BYTES > addresses.capacity()) {
      addresses = allocate(count * Long.BYTES);
    }
    int offset = 0;
    for (int i = 0; i < count; i++) {
      addresses.putLong(i * Long.BYTES, values.addressOffset() + offset);
      offset += align(put(offset, kernel, i, args.get(i, Object.class)));
    }
    return pointer.set(addresses.addressOffset());
  }

  private static int align(int length) {
    return length + ALIGNMENT - 1 & -ALIGNMENT;
  }

  private static int lengthOf(Kernel kernel, int index, Object value) {
    if (value instanceof DeviceHandle handle) {
      return handle.handleLength();
    } else if (value instanceof byte[] bytes) {
      return bytes.length;
    } else if (value instanceof ByteBuffer bytes) {
      return bytes.remaining();
    } else if (value instanceof Integer || value instanceof Float) {
      return Integer.BYTES;
    } else if (value instanceof Long
        || value instanceof Double
        || value instanceof DeviceBuffer
        || value instanceof PinnedBuffer
        || value instanceof AbortFlag) {
      return Long.BYTES;
    }
    throw refused(kernel, index, "is a " + value.getClass().getName());
  }

  private int put(int offset, Kernel kernel, int index, Object value) {
    if (value instanceof Integer) {
      values.putInt(offset, (Integer) value, ByteOrder.LITTLE_ENDIAN);
    } else if (value instanceof Long) {
      putLong(offset, (Long) value);
    } else if (value instanceof Float) {
      values.putFloat(offset, (Float) value, ByteOrder.LITTLE_ENDIAN);
    } else if (value instanceof Double) {
      values.putDouble(offset, (Double) value, ByteOrder.LITTLE_ENDIAN);
    } else if (value instanceof DeviceBuffer) {
      putLong(offset, addressOf(kernel, index, (DeviceBuffer) value));
    } else if (value instanceof PinnedBuffer) {
      putLong(offset, CudaPinnedBuffer.addressFor("argument " + index, (PinnedBuffer) value, 0, 0));
    } else if (value instanceof AbortFlag) {
      putLong(offset, ((AbortFlag) value).deviceAddress());
    } else if (value instanceof DeviceHandle) {
      ((DeviceHandle) value).writeHandle(values, offset);
    } else if (value instanceof byte[]) {
      values.putBytes(offset, (byte[]) value);
    } else {
      ByteBuffer bytes = (ByteBuffer) value;
      values.putBytes(offset, bytes, bytes.position(), bytes.remaining());
    }
    return lengthOf(kernel, index, value);
  }

  private void putLong(int offset, long value) {
    values.putLong(offset, value, ByteOrder.LITTLE_ENDIAN);
  }

  private long addressOf(Kernel kernel, int index, DeviceBuffer value) {
    if (!(value instanceof CudaBuffer)) {
      throw refused(kernel, index, "is memory of " + value.device());
    }
    CudaBuffer buffer = (CudaBuffer) value;
    if (buffer.isClosed()) {
      throw refused(kernel, index, "is closed: " + buffer);
    }
    if (!device.reaches(buffer.device().index())) {
      throw refused(
          kernel,
          index,
          String.format(
              "is memory of GPU %s; call enablePeerAccess(%s) before",
              buffer.device().index(), buffer.device().index()));
    }
    return buffer.address();
  }

  private static InvalidUsage refused(Kernel kernel, int index, String why) {
    return InvalidUsage.of(
        "argument %s of kernel %s %s; a kernel on a GPU takes int, long, float,"
            + " double, buffers of GPUs, abort flags,"
            + " device handles, and"
            + " structures as byte[] or ByteBuffer",
        index, kernel.name(), why);
  }
}

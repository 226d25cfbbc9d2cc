// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device;

import io.fluxccl.Experimental;
import io.fluxccl.InvalidUsage;
import java.util.List;
import java.util.Objects;
import org.agrona.MutableDirectBuffer;
import org.agrona.concurrent.UnsafeBuffer;

/**
 * The representation of a host object for kernels: a structure of addresses and numbers, with the
 * layout of the object's descriptor class. Host kernels and CUDA kernels use the same bytes. Kernel
 * arguments pass it by value.
 */
@Experimental
public interface DeviceHandle {
  /** Returns the bytes of the structure; a multiple of 8. */
  int handleLength();

  /**
   * Writes the structure, {@link #handleLength()} bytes.
   *
   * @param target the memory to write
   * @param offset from its start
   * @throws IllegalStateException if it needs a value of a peer before {@code setup()}
   */
  void writeHandle(MutableDirectBuffer target, int offset);

  /**
   * Returns device memory that holds an array of structures, for kernels that take one.
   *
   * @param device of the kernels
   * @param handles all of one type; null stands for zeros, for example for this rank in an array by
   *     rank
   * @return the memory, which the caller closes
   * @throws InvalidUsage if all are null, or they differ in length
   * @throws IllegalStateException as {@link #writeHandle}
   */
  static DeviceBuffer upload(Device device, List<? extends DeviceHandle> handles) {
    int[] lengths =
        handles.stream()
            .filter(Objects::nonNull)
            .mapToInt(DeviceHandle::handleLength)
            .distinct()
            .toArray();
    if (lengths.length != 1) {
      throw InvalidUsage.of(
          "an array of handles needs handles of one type, and %s have %s lengths",
          handles.size(), lengths.length);
    }
    UnsafeBuffer structures = new UnsafeBuffer(new byte[handles.size() * lengths[0]]);
    for (int i = 0; i < handles.size(); i++) {
      if (handles.get(i) != null) {
        handles.get(i).writeHandle(structures, i * lengths[0]);
      }
    }
    DeviceBuffer memory = device.allocate(structures.capacity());
    memory.upload(0, structures.byteArray());
    return memory;
  }
}

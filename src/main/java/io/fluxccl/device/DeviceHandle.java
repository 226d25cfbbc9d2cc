// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device;

import io.fluxccl.Experimental;
import io.fluxccl.InvalidUsage;
import java.util.List;
import java.util.Objects;
import org.agrona.MutableDirectBuffer;
import org.agrona.concurrent.UnsafeBuffer;

/**
 * The view that a kernel gets of an object of the host: a structure of addresses and numbers, laid
 * out as the object's descriptor class says, the same bytes for host kernels and for CUDA. As a
 * kernel argument it is passed by value.
 */
@Experimental
public interface DeviceHandle {
  /** Returns the bytes of the structure; a multiple of 8. */
  int handleLength();

  /**
   * Writes the structure, {@link #handleLength()} bytes.
   *
   * @param target where
   * @param offset from its start
   * @throws IllegalStateException if it needs a value of a peer before {@code setup()}
   */
  void writeHandle(MutableDirectBuffer target, int offset);

  /**
   * Returns device memory that holds structures one behind the other, for kernels that take an
   * array of them.
   *
   * @param device of the kernels
   * @param handles all of one type; of null, zeros: for example for the rank itself in an array by
   *     rank
   * @return the memory, which the caller closes
   * @throws InvalidUsage if there is none but nulls, or they differ in length
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

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.allpairs;

import io.fluxccl.device.DeviceBuffer;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/** Input and expected values; every element of every buffer is checked. */
final class SampleInputs {
  private SampleInputs() {}

  static int input(int buffer, int rank, int index) {
    return (index * 7 + buffer * 1_000_003) ^ (rank * 0x5bd1e995);
  }

  static int sum(int buffer, int nRanks, int index) {
    int sum = 0;
    for (int rank = 0; rank < nRanks; rank++) {
      sum += input(buffer, rank, index);
    }
    return sum;
  }

  static void fill(Mesh mesh) {
    ByteBuffer values = ByteBuffer.allocateDirect((int) mesh.bytes).order(ByteOrder.LITTLE_ENDIAN);
    for (int i = 0; i < mesh.buffers.size(); i++) {
      values.clear();
      for (int index = 0; values.hasRemaining(); index++) {
        values.putInt(input(i, mesh.rank, index));
      }
      mesh.buffers.get(i).upload(0, values.flip());
    }
  }

  /** Throws on the first element that is not the sum. */
  static void check(Mesh mesh, String step) {
    ByteBuffer values = ByteBuffer.allocateDirect((int) mesh.bytes).order(ByteOrder.LITTLE_ENDIAN);
    for (int i = 0; i < mesh.buffers.size(); i++) {
      DeviceBuffer buffer = mesh.buffers.get(i);
      values.clear();
      buffer.download(0, values);
      values.flip();
      for (int index = 0; values.hasRemaining(); index++) {
        int actual = values.getInt();
        int expected = sum(i, mesh.nRanks, index);
        if (actual != expected) {
          throw new IllegalStateException(
              step
                  + ": rank "
                  + mesh.rank
                  + " buffer "
                  + i
                  + " index "
                  + index
                  + " is "
                  + actual
                  + ", expected "
                  + expected);
        }
      }
    }
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.docs;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.collective.Collectives;
import io.fluxccl.collective.Pipeline;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.matmul.HostMatrix;
import io.fluxccl.matmul.MatrixProduct;
import io.fluxccl.matmul.MatrixProducts;
import io.fluxccl.matmul.PackedMatrix;
import io.fluxccl.matmul.PackedProducts;
import io.fluxccl.testing.EmulatedGpus;
import io.fluxccl.testing.RequiresGpus;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.Ranks;
import java.nio.ByteBuffer;
import java.time.Duration;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** A product between collectives, as collectives-and-pipelines shows it. */
@EmulatedGpus
@RequiresGpus(1)
@Timeout(120)
@Ranks(value = 1, onGpus = true, leakCheck = false)
class MatrixProductsTest {
  private final int rows = 3;
  private final int inputs = 16;
  private final int outputs = 32;

  /** As bfloat16, little-endian: all 1. */
  private static byte[] ones(int count) {
    byte[] bytes = new byte[2 * count];
    for (int i = 0; i < count; i++) {
      bytes[2 * i] = (byte) 0x80;
      bytes[2 * i + 1] = 0x3f;
    }
    return bytes;
  }

  private static DeviceBuffer ones(CudaDevice gpu, int count) {
    byte[] bytes = ones(count);
    DeviceBuffer buffer = gpu.allocate(bytes.length);
    buffer.upload(0, bytes);
    return buffer;
  }

  @BeforeEach
  void findTheLibrary() {
    String problem = MatrixProducts.unavailableBecause().orElse("");
    assumeTrue(problem.isEmpty(), problem);
  }

  private static void assertElements(DeviceBuffer y, int firstHighByte) {
    byte[] found = new byte[(int) y.size()];
    y.download(0, found);
    assertThat(found[1]).isEqualTo((byte) firstHighByte);
    assertThat(found[found.length - 2]).isEqualTo((byte) 0x80);
  }

  @Test
  void shouldMultiplyBetweenCollectives(LocalRank rank) {
    CudaDevice gpu = (CudaDevice) rank.device();
    DeviceBuffer x = ones(gpu, rows * inputs);
    DeviceBuffer weights = ones(gpu, outputs * inputs);
    DeviceBuffer y = gpu.allocate(2L * rows * outputs);
    try (Collectives collectives = Collectives.create(rank.communicator()).join()) {
      MatrixProducts products = new MatrixProducts(gpu); // finds cuBLASLt
      MatrixProduct projection =
          products.plan(outputs, inputs, DataType.BFLOAT16, DataType.BFLOAT16, 64); // typical rows
      Pipeline layer =
          collectives
              .pipeline()
              .enqueue("project", stream -> projection.enqueue(stream, rows, x, weights, y))
              .allReduce(y, DataType.BFLOAT16, ReduceOp.SUM);
      layer.run().block(Duration.ofSeconds(60));
      products.close();
    }
    assertElements(y, 0x41); // 16 is 0x4180
  }

  @Test
  void shouldMultiplyByPackedWeights(LocalRank rank) {
    int inputs = 64;
    CudaDevice gpu = (CudaDevice) rank.device();
    ByteBuffer file = ByteBuffer.wrap(ones(outputs * inputs));
    DeviceBuffer y = gpu.allocate(2L * rows * outputs);
    try (Collectives collectives = Collectives.create(rank.communicator()).join()) {
      PackedProducts products =
          PackedProducts.of(gpu, DataType.BFLOAT16, 256, inputs); // up to 256 rows
      PackedMatrix projection =
          products.pack(
              PackedMatrix.Result.ELEMENTS,
              HostMatrix.of(file, DataType.BFLOAT16, outputs, inputs));
      DeviceBuffer x = ones(gpu, products.roomFor(rows) * inputs);
      Pipeline layer =
          collectives
              .pipeline()
              .enqueue("project", stream -> projection.enqueue(stream, rows, x, y));
      layer.run().block(Duration.ofSeconds(60));
      products.close();
    }
    assertElements(y, 0x42); // 64 is 0x4280
  }
}

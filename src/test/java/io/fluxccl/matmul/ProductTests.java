// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.matmul;

import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.fluxccl.DataType;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.FloatView;
import io.fluxccl.device.HalfFloat;
import io.fluxccl.device.cuda.CudaBuffer;
import io.fluxccl.device.cuda.CudaDevice;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Timeout;

/** A GPU for products, and the numbers that they multiply. */
@Timeout(120)
abstract class ProductTests {
  CudaDevice device;
  DeviceStream stream;

  @BeforeEach
  void openDevice() {
    String problem = MatrixProducts.unavailableBecause().orElse("");
    assumeTrue(problem.isEmpty(), problem);
    device = CudaDevice.open(0);
    stream = device.createStream("products");
  }

  @AfterEach
  void closeDevice() {
    if (device != null) {
      device.close();
    }
  }

  /** Returns bfloat16 numbers so small that a sum of 512 products is exact. */
  static float[] numbers(int seed, int count) {
    Random random = new Random(seed);
    float[] numbers = new float[count];
    for (int i = 0; i < count; i++) {
      numbers[i] = random.nextInt(33) / 16f - 1;
    }
    return numbers;
  }

  /** Returns the product of a row of the input and a row of the weights. */
  static float dot(float[] in, int row, float[] weights, int output, int inputs) {
    float sum = 0;
    for (int i = 0; i < inputs; i++) {
      sum += in[row * inputs + i] * weights[output * inputs + i];
    }
    return sum;
  }

  static float rounded(float value) {
    return HalfFloat.fromBfloat16(HalfFloat.toBfloat16(value));
  }

  static HostMatrix matrix(DataType type, float[] values, int rows, int cols) {
    ByteBuffer data = ByteBuffer.allocate((int) type.bytes(values.length));
    data.order(ByteOrder.LITTLE_ENDIAN);
    for (float value : values) {
      switch (type) {
        case FLOAT32 -> data.putFloat(value);
        case FLOAT16 -> data.putShort(HalfFloat.toFloat16(value));
        default -> data.putShort(HalfFloat.toBfloat16(value));
      }
    }
    return HostMatrix.of(data.clear(), type, rows, cols);
  }

  final CudaBuffer upload(DataType type, float[] values) {
    CudaBuffer buffer = device.allocate(type.bytes(values.length));
    HostMatrix.upload(buffer, type, matrix(type, values, 1, values.length));
    return buffer;
  }

  /** Waits for what is enqueued, and returns the elements of a buffer. */
  final float[] download(DataType type, CudaBuffer buffer) throws Exception {
    stream.completion().get(60, TimeUnit.SECONDS);
    return FloatView.of(buffer, type).toArray();
  }
}

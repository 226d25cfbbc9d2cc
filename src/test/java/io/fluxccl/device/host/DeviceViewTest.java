// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.host;

import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.DataType;
import io.fluxccl.device.ByteView;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.FloatView;
import io.fluxccl.device.IntView;
import io.fluxccl.device.KernelArgs;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

@Tag("jdk")
class DeviceViewTest {
  private final HostDevice device = HostDevice.create();

  @AfterEach
  void close() {
    device.close();
  }

  @Test
  void shouldStoreFloatsAsKernelsReadThem() {
    try (FloatView x = device.allocateFloats(1000)) {
      assertThat(x.toArray()).containsOnly(0).hasSize(1000);
      x.put(999, 2.5f);
      assertThat(HostMemory.getFloat(x.buffer().address() + 999 * 4)).isEqualTo(2.5f);
      HostMemory.putFloat(x.buffer().address() + 4, -7);
      assertThat(x.get(1)).isEqualTo(-7);
      assertThat(x.type()).isEqualTo(DataType.FLOAT32);
      assertThat(x.buffer().size()).isEqualTo(4000);
    }
  }

  @Test
  void shouldCopyArraysOfSeveralPieces() {
    float[] floats = new float[100_003];
    int[] ints = new int[floats.length];
    byte[] bytes = new byte[floats.length];
    for (int i = 0; i < floats.length; i++) {
      floats[i] = i / 4f;
      ints[i] = -i;
      bytes[i] = (byte) i;
    }
    try (FloatView x = device.allocateFloats(floats.length);
        IntView y = device.allocateInts(floats.length);
        ByteView z = device.allocateBytes(floats.length)) {
      x.put(floats);
      y.put(ints);
      z.put(bytes);
      assertThat(x.toArray()).isEqualTo(floats);
      assertThat(y.toArray()).isEqualTo(ints);
      assertThat(z.toArray()).isEqualTo(bytes);
      assertThat(x.get(70_001)).isEqualTo(70_001 / 4f);
      assertThat(y.get(70_001)).isEqualTo(-70_001);
      assertThat(z.get(70_001)).isEqualTo((byte) 70_001);
    }
  }

  @Test
  void shouldRoundToSixteenBits() {
    for (DataType type : new DataType[] {DataType.FLOAT16, DataType.BFLOAT16}) {
      try (FloatView x = FloatView.of(device.allocate(12), type)) {
        x.put(new float[] {1, -2.5f, 0.1f, 1e6f, Float.NaN, 0});
        x.put(5, 0.1f);
        boolean isHalf = type == DataType.FLOAT16;
        float tenth = isHalf ? 0.099975586f : 0.100097656f;
        float million = isHalf ? Float.POSITIVE_INFINITY : 999424;
        assertThat(x.size()).isEqualTo(6);
        assertThat(x.toArray()).containsExactly(1, -2.5f, tenth, million, Float.NaN, tenth);
        assertThat(x.get(2)).isEqualTo(tenth);
        assertThat(x.asByteBuffer().getShort(0)).isEqualTo((short) (isHalf ? 0x3c00 : 0x3f80));
      }
    }
  }

  @Test
  void shouldCountByRowsAndColumns() {
    try (IntView x = device.allocateInts(3, 4)) {
      assertThat(x.rows()).isEqualTo(3);
      assertThat(x.cols()).isEqualTo(4);
      x.put(2, 1, 21);
      assertThat(x.get(9)).isEqualTo(21);
      assertThat(x.shaped(2, 6).get(1, 3)).isEqualTo(21);
      IntView part = x.slice(8, 4);
      assertThat(part.toArray()).containsExactly(0, 21, 0, 0);
      assertThat(part.rows()).isEqualTo(1);
      assertThat(part.cols()).isEqualTo(4);
      part.close();
      part.put(0, 20);
      assertThat(x.get(2, 0)).isEqualTo(20);
      assertRefused(() -> x.get(3, 0), "row=3 col=0");
      assertRefused(() -> x.get(0, 4), "row=0 col=4");
      assertRefused(() -> x.put(-1, 0, 1), "row=-1");
      assertRefused(() -> x.shaped(5, 2), "rows=5 cols=2");
      assertRefused(() -> x.shaped(Long.MAX_VALUE, 2), "cols=2");
    }
    assertRefused(() -> device.allocateFloats(1L << 40, 1L << 40), "cols=1099511627776");
    assertRefused(() -> device.allocateFloats(0, 1), "rows=0");
    assertRefused(() -> device.allocateFloats(Long.MAX_VALUE), "more bytes");
    assertRefused(() -> device.allocateFloats(0), "size=0");
  }

  @Test
  void shouldCheckBounds() {
    try (FloatView x = device.allocateFloats(4)) {
      assertRefused(() -> x.get(4), "index=4");
      assertRefused(() -> x.put(-1, 1), "index=-1");
      assertRefused(() -> x.put(new float[5]), "5 elements");
      assertRefused(() -> x.put((float[]) null), "values=null");
      assertRefused(() -> x.slice(3, 2), "from=3 count=2");
      assertRefused(() -> x.slice(1, Long.MAX_VALUE), "from=1");
      assertThat(x.slice(4, 0).toArray()).isEmpty();
      x.put(new float[] {1, 2});
      assertThat(x.toArray()).containsExactly(1, 2, 0, 0);
    }
  }

  @Test
  void shouldRefuseBuffersThatDoNotHoldWholeElements() {
    try (DeviceBuffer ten = device.allocate(10)) {
      assertRefused(() -> FloatView.of(ten), "10 bytes");
      assertRefused(() -> FloatView.of(ten, DataType.INT32), "type=INT32");
      assertRefused(() -> IntView.of(ten, null), "type=null");
      assertRefused(() -> ByteView.of(null), "buffer=null");
      assertThat(FloatView.of(ten, DataType.BFLOAT16).size()).isEqualTo(5);
    }
  }

  @Test
  void shouldShowTheMemoryItselfInItsOrder() {
    try (FloatView x = device.allocateFloats(30_000)) {
      ByteBuffer memory = x.slice(2, 10).asByteBuffer();
      assertThat(memory.order()).isEqualTo(ByteOrder.nativeOrder());
      assertThat(memory.remaining()).isEqualTo(40);
      memory.putFloat(4, 3.5f);
      assertThat(x.get(3)).isEqualTo(3.5f);
      x.put(2, 4.5f);
      assertThat(memory.getFloat(0)).isEqualTo(4.5f);
    }
  }

  @Test
  void shouldReachKernelsAsItsBuffer() {
    try (FloatView x = device.allocateFloats(4);
        HostStream stream = device.createStream("views")) {
      HostKernel set =
          new HostKernel(
              "set",
              (thread, args) ->
                  HostMemory.putFloat(args.get(0, DeviceBuffer.class).address() + 8, 6));
      stream.launch(set, 1, 1, KernelArgs.of(x)).completion().join();
      assertThat(x.toArray()).containsExactly(0, 0, 6, 0);
    }
  }

  @Test
  void shouldRefuseClosedMemory() {
    FloatView x = device.allocateFloats(4);
    x.close();
    x.close();
    assertThat(x.buffer().isClosed()).isTrue();
    assertRefused(() -> x.get(0), "closed");
    assertRefused(() -> x.put(0, 1), "closed");
    assertRefused(x::toArray, "closed");
    assertRefused(x::asByteBuffer, "closed");
  }

  @Test
  void shouldRefuseByteBuffersInJavasOrder() {
    try (DeviceBuffer buffer = device.allocate(8)) {
      ByteBuffer javas = ByteBuffer.allocate(8).putFloat(0, 1);
      assertRefused(() -> buffer.upload(0, javas), ".order(ByteOrder.nativeOrder())");
      assertRefused(() -> buffer.download(0, javas), ".order(ByteOrder.nativeOrder())");
      assertThat(javas.position()).isZero();
      // A byte has no order.
      buffer.upload(7, ByteBuffer.wrap(new byte[] {5}));
      buffer.upload(0, new byte[] {4, 3});
      byte[] back = new byte[8];
      buffer.download(0, back);
      assertThat(back).containsExactly(4, 3, 0, 0, 0, 0, 0, 5);
    }
  }

  @Test
  void shouldRefuseNullBytes() {
    try (DeviceBuffer buffer = device.allocate(8)) {
      assertRefused(() -> buffer.upload(0, (ByteBuffer) null), "upload: source=null");
      assertRefused(() -> buffer.download(0, (ByteBuffer) null), "download: target=null");
      assertRefused(() -> buffer.upload(0, (byte[]) null), "upload: source=null");
      assertRefused(() -> buffer.download(0, (byte[]) null), "download: target=null");
    }
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.AfterEach;

/** A device, two streams, words to poll, and gates that block streams. */
public abstract class StreamScenario {
  protected final TestDevice kind;
  protected final Device device;
  protected final DeviceStream first;
  protected final DeviceStream second;

  /** Words that kernels and streams store to, zero at first. */
  protected final PinnedBuffer words;

  private final List<PinnedBuffer> gates = new ArrayList<>();

  protected StreamScenario(TestDevice kind) {
    this.kind = kind;
    this.device = kind.open(0);
    this.first = device.createStream("first");
    this.second = device.createStream("second");
    this.words = device.allocatePinned(256);
  }

  @AfterEach
  void close() {
    gates.forEach(StreamScenario::open);
    gates.forEach(PinnedBuffer::close);
    words.close();
    device.close();
    Awaitility.await().until(() -> kind.isGone(device));
  }

  protected static void await(CompletableFuture<?> future) throws Exception {
    future.get(40, TimeUnit.SECONDS);
  }

  /** A word that a spinning kernel can wait for; opened at the end at the latest. */
  protected final PinnedBuffer gate() {
    PinnedBuffer gate = device.allocatePinned(8);
    gates.add(gate);
    return gate;
  }

  /** Enqueues a kernel that blocks later work of the stream until the gate is opened. */
  protected final PinnedBuffer hold(DeviceStream stream) {
    PinnedBuffer gate = gate();
    waitAt(gate, stream);
    return gate;
  }

  protected final void waitAt(PinnedBuffer gate, DeviceStream stream) {
    stream.launch(kind.spin, 1, 1, KernelArgs.of(gate, 1L));
  }

  protected static void open(PinnedBuffer gate) {
    gate.buffer().putLongRelease(0, 1); // pairs with the acquire in the kernel
  }

  protected final void add(DeviceStream stream, DeviceBuffer counter) {
    stream.launch(kind.add, 1, 1, KernelArgs.of(counter, 1L));
  }

  protected final void fill(DeviceStream stream, DeviceBuffer buffer, int value) {
    stream.launch(kind.fill, 1, 1, KernelArgs.of(buffer, buffer.size(), value));
  }

  protected final DeviceGraph graphOf(Consumer<DeviceStream> work) {
    return device.record("graph", work);
  }

  protected final long word(int index) {
    return words.buffer().getLongAcquire(8 * index);
  }

  protected static long longOf(DeviceBuffer buffer) {
    ByteBuffer bytes = ByteBuffer.allocate(8).order(java.nio.ByteOrder.LITTLE_ENDIAN);
    buffer.download(0, bytes);
    return bytes.getLong(0);
  }

  protected static byte[] bytesOf(DeviceBuffer buffer) {
    byte[] bytes = new byte[(int) buffer.size()];
    buffer.download(0, bytes);
    return bytes;
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.gpu;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.FluxCclException;
import io.fluxccl.device.AbortFlag;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.PinnedBuffer;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.proxy.Fifo;
import io.fluxccl.proxy.Proxy;
import io.fluxccl.proxy.ProxyHandler;
import io.fluxccl.proxy.ProxyHandlerResult;
import io.fluxccl.proxy.ProxyOptions;
import io.fluxccl.testing.EmulatedGpus;
import io.fluxccl.testing.RequiresGpus;
import io.fluxccl.testing.Rounds;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.agrona.concurrent.AtomicBuffer;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** The ring with real kernels as producers. */
@EmulatedGpus
@RequiresGpus
class FifoGpuTest {
  private static final long SECONDS = 120;
  private static final int LINE = 64;

  private CudaDevice device;
  private DeviceStream stream;
  private AbortFlag abort;
  private DeviceBuffer wrong;

  @BeforeEach
  void open() {
    device = CudaDevice.open(0);
    stream = device.createStream("producers");
    TestKernels.prepare(device, "fifo", "ranges");
    abort = new AbortFlag(device);
    wrong = device.allocate(Integer.BYTES);
  }

  @AfterEach
  void close() {
    // A kernel of a test that failed may still wait.
    abort.set();
    wrong.close();
    abort.close();
    stream.close();
    device.close();
  }

  /** Checks that each producer's triggers come whole, once and in their order. */
  private final class Checker implements ProxyHandler {
    private final long[] next;
    private final AtomicBuffer handled;
    private long surprises;
    private long positions;

    /** Stores how many of a producer's triggers are handled in its line, where there are lines. */
    Checker(int producers, PinnedBuffer handled) {
      this.next = new long[producers];
      this.handled = handled == null ? null : handled.buffer();
    }

    @Override
    public ProxyHandlerResult handle(long first, long second, long position) {
      int producer = (int) (first >>> Integer.SIZE);
      long index = first & 0xffff_ffffL;
      if (position != positions
          || producer >= next.length
          || index != next[producer]
          || index != second) {
        surprises++;
      } else {
        next[producer]++;
        if (handled != null) {
          handled.putLong(producer * LINE, index + 1);
        }
      }
      positions++;
      return ProxyHandlerResult.CONTINUE;
    }

    /** Called when the proxy has stopped, which makes what its thread wrote visible. */
    void assertEach(long count) {
      assertThat(surprises).as("triggers that did not come as pushed").isZero();
      assertThat(GpuRank.readInt(wrong, 0)).as("pushes that gave up, or saw too little").isZero();
      assertThat(positions).isEqualTo(next.length * count);
      assertThat(next).containsOnly(count);
    }
  }

  @ParameterizedTest(name = "{0}: ring of {1}, {2} x {3} threads, {4} triggers each")
  @CsvSource({
    "fifoPush, 512, 1, 1, 100000",
    "fifoRelaxedPush, 512, 1, 1, 100000",
    // Around the ring with every push, and all lanes of a warp waiting for each other's slots.
    "fifoPush, 1, 1, 1, 5000",
    "fifoPush, 1, 1, 32, 200",
    "fifoRelaxedPush, 1, 1, 32, 200",
    "fifoPush, 4, 1, 64, 500",
    "fifoPush, 512, 32, 1, 20000",
    "fifoPush, 512, 4, 32, 20000",
    "fifoRelaxedPush, 512, 4, 32, 20000",
    "fifoPush, 512, 1, 1024, 500",
    "fifoPush, 64, 16, 128, 100",
    // These read the words that the handler has written.
    "fifoPushAndLook, 512, 1, 1, 5000",
    "fifoPushAndLook, 8, 1, 64, 200",
    "fifoPushAndLook, 512, 8, 64, 200",
    "fifoPushAllAndLook, 512, 1, 1, 5000",
    "fifoPushAllAndLook, 8, 1, 64, 200",
    "fifoPushAllAndLook, 512, 8, 64, 200"
  })
  void shouldHandleEachTriggerOnceAndInItsProducersOrder(
      String kernel, int size, int blocks, int threads, int most) throws Exception {
    // Emulated, in a ring of one, every push waits for a turn of the proxy's thread.
    int count = size == 1 && EmulatedGpus.HERE ? Rounds.of(most / 4, most) : most;
    boolean looks = kernel.endsWith("Look");
    int producers = blocks * threads;
    try (PinnedBuffer handled = looks ? device.allocatePinned(producers * LINE) : null) {
      Checker checker = new Checker(producers, handled);
      Fifo fifo = new Fifo(device, size);
      List<Object> args = new ArrayList<>(List.of(fifo.deviceHandle(abort), count, wrong));
      if (looks) {
        args.add(2, handled);
      }
      String file = looks ? "ranges" : "fifo";
      proxied(fifo, checker, () -> run(file, kernel, blocks, threads, args.toArray()));
      checker.assertEach(count);
    }
  }

  @Test
  void shouldHoldBackProducersWhileTheRingIsFull() throws Exception {
    int threads = 64;
    Checker checker = new Checker(threads, null);
    Fifo fifo = new Fifo(device, 16);
    try (Proxy proxy = new Proxy(fifo, checker, ProxyOptions.defaults())) {
      launch("fifo", "fifoPush", 1, threads, fifo.deviceHandle(abort), 100, wrong);
      CompletableFuture<Void> done = stream.completion();
      // They push from now on; what is pushed over a slot that is still in use would be missed.
      Awaitility.await().until(fifo::poll);
      Awaitility.await().until(abort::isWaitingForOwnProxy);
      assertThat(abort.waitingFor()).isEqualTo(FluxCclException.NO_RANK);
      assertThat(done).isNotDone();
      proxy.start();
      done.get(SECONDS, TimeUnit.SECONDS);
      proxy.stop();
      checker.assertEach(100);
    }
  }

  @Test
  void shouldShowWritesBeforeThePushToTheHandler() throws Exception {
    int producers = 32;
    int count = 5000;
    AtomicLong early = new AtomicLong();
    try (PinnedBuffer data = device.allocatePinned(producers * Long.BYTES)) {
      AtomicBuffer words = data.buffer();
      Fifo fifo = new Fifo(device, 512);
      ProxyHandler handler =
          (first, second, position) -> {
            if (words.getLong((int) first * Long.BYTES) != second) {
              early.incrementAndGet();
            }
            return ProxyHandlerResult.CONTINUE;
          };
      Object[] args = {fifo.deviceHandle(abort), data, count, wrong};
      proxied(fifo, handler, () -> run("fifo", "fifoDataBeforeTrigger", producers, 1, args));
      assertThat(fifo.tail()).isEqualTo((long) producers * count);
    }
    assertThat(early).hasValue(0);
    assertThat(GpuRank.readInt(wrong, 0)).isZero();
  }

  private void launch(String file, String kernel, int blocks, int threads, Object... args) {
    stream.launch(TestKernels.of(file, kernel), blocks, threads, KernelArgs.of(args));
  }

  private void run(String file, String kernel, int blocks, int threads, Object... args)
      throws Exception {
    launch(file, kernel, blocks, threads, args);
    stream.completion().get(SECONDS, TimeUnit.SECONDS);
  }

  private interface Kernels {
    void run() throws Exception;
  }

  /** Runs kernels while a proxy gives the ring's triggers to the handler, and then stops it. */
  private static void proxied(Fifo fifo, ProxyHandler handler, Kernels kernels) throws Exception {
    try (Proxy proxy = new Proxy(fifo, handler, ProxyOptions.defaults())) {
      proxy.start();
      kernels.run();
      proxy.stop();
    }
  }
}

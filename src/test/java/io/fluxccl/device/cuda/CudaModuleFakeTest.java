// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static io.fluxccl.testing.FailureAssertions.assertThrows;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.InvalidUsage;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.testing.FakeCuda;
import io.fluxccl.testing.RequiresNativeLibrary;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** When modules are loaded. The fake driver finds its kernels by their names in a text. */
@FakeCuda
@Timeout(60)
class CudaModuleFakeTest {
  private static final byte[] KERNELS = "fake_store fake_fill".getBytes(StandardCharsets.US_ASCII);

  private final CudaDevice device = CudaDevice.open(0);

  @TempDir Path folder;

  @AfterEach
  void close() {
    device.close();
  }

  private void run(CudaKernel kernel) {
    try (CudaPinnedBuffer pinned = device.allocatePinned(8);
        CudaStream stream = device.createStream("run")) {
      stream.launch(kernel, 1, 1, KernelArgs.of(pinned, 5L));
      assertThat(stream.completion()).succeedsWithin(60, TimeUnit.SECONDS);
      assertThat(pinned.buffer().getLongAcquire(0)).isEqualTo(5); // the kernel's store
    }
  }

  @Test
  void shouldHaveTheBuiltInKernelsLoadedFromTheStart() {
    assertThat(device.context().modules).containsKey(CudaModule.builtIn());
    CudaModule.builtIn().close();
    CudaModule.builtIn().kernel("fluxccl_empty").prepare(device);
  }

  @Test
  void shouldLaunchKernelsWithLargeStacksWhileOthersWait() {
    CudaModule module =
        CudaModule.fromPtx("fake_spin fake_deep".getBytes(StandardCharsets.US_ASCII));
    CudaKernel deep = module.kernel("fake_deep").prepare(device);
    try (CudaPinnedBuffer go = device.allocatePinned(8);
        CudaStream waiting = device.createStream("waiting")) {
      waiting.launch(module.kernel("fake_spin").prepare(device), 1, 1, KernelArgs.of(go, 1L));
      run(deep);
      go.buffer().putLongRelease(0, 1);
      assertThat(waiting.completion()).succeedsWithin(60, TimeUnit.SECONDS);
    }
  }

  @Test
  void shouldLoadOnceForAllDevicesOfAGpuAndAgainForANewContext() {
    CudaModule module = CudaModule.fromPtx(KERNELS);
    CudaModule.Loaded first = module.loadedOn(device);
    try (CudaDevice same = CudaDevice.open(0);
        CudaDevice other = CudaDevice.open(1)) {
      assertThat(module.loadedOn(same)).isSameAs(first);
      assertThat(module.loadedOn(other)).isNotSameAs(first);
    }
    CudaKernel kernel = module.kernel("fake_store");
    run(kernel);
    device.close();
    Awaitility.await().until(() -> device.context().users() == 0);
    try (CudaDevice again = CudaDevice.open(0)) {
      assertThat(module.loadedOn(again)).isNotSameAs(first);
      kernel.prepare(again);
      assertThat(again.context().modules).containsKey(module);
      module.close();
      Awaitility.await().until(() -> !again.context().modules.containsKey(module));
      assertRefused(() -> kernel.prepare(again), "closed");
    }
  }

  @Test
  @RequiresNativeLibrary
  void shouldRunKernelsFromSourceAndFromAFile() throws Exception {
    String source = "extern \"C\" __global__ void fake_store(long long* p, long long v);";
    CudaCompileOptions nvrtc =
        CudaCompileOptions.DEFAULT.withCompiler(CudaCompileOptions.Compiler.NVRTC);
    Path file = Files.writeString(folder.resolve("store.cu"), source);
    Path ptx = Files.write(folder.resolve("store.ptx"), KERNELS);
    for (CudaModule each :
        List.of(
            CudaModule.fromSource("store.cu", source, nvrtc),
            CudaModule.fromFile(file, nvrtc),
            CudaModule.fromFile(ptx))) {
      try (CudaModule module = each) {
        run(module.kernel("fake_store"));
        assertRefused(
            () -> module.kernel("fake_none").prepare(device),
            "has no kernel fake_none",
            "extern \"C\"");
      }
    }
    assertRefused(() -> CudaModule.fromFile(folder.resolve("store.txt")));
    assertRefused(() -> CudaModule.fromFile(folder.resolve("none.ptx")));
  }

  @Test
  void shouldRefuseInvalidImages() {
    assertRefused(() -> CudaModule.fromCubin(new byte[] {1, 2, 3}), "3 bytes");
    CudaModule module = CudaModule.fromPtx(new byte[] {'x'});
    assertRefused(() -> module.prepare(device), "cuModuleLoadData");
  }

  @Test
  void shouldTryTheFallbackIfTheDriverRefusesAnImage() {
    AtomicInteger tried = new AtomicInteger();
    CudaModule.Images images =
        new CudaModule.Images() {
          @Override
          public CudaModule.Image make(int capability) {
            return CudaModule.Image.ptx(new byte[] {'x'});
          }

          @Override
          public CudaModule.Image makeInstead(int capability, InvalidUsage refusal) {
            tried.incrementAndGet();
            return CudaModule.Image.ptx(KERNELS);
          }
        };
    try (CudaModule module = new CudaModule("two", images, true);
        CudaDevice other = CudaDevice.open(1)) {
      run(module.kernel("fake_store"));
      module.prepare(other); // a GPU of the same kind, which does not try the first again
      assertThat(tried).hasValue(1);
    }
  }

  @Test
  void shouldAllowMoreSharedMemoryThanADriverDoesByItself() {
    try (CudaModule module = CudaModule.fromPtx(KERNELS)) {
      run(module.kernel("fake_store").withSharedMemory(100 * 1024));
      run(module.kernel("fake_store"));
      assertThrows(
          io.fluxccl.FluxCclException.class,
          () -> run(module.kernel("fake_store").withSharedMemory(1 << 20)));
      assertRefused(() -> module.kernel("fake_store").withSharedMemory(-1));
    }
  }

  @Test
  @RequiresNativeLibrary
  void shouldRefuseArgumentsThatTheKernelDoesNotTake() {
    try (CudaModule module = CudaModule.fromPtx(KERNELS);
        CudaStream stream = device.createStream("args")) {
      CudaKernel kernel = module.kernel("fake_store");
      assertRefused(
          () -> stream.launch(kernel, 1, 1, KernelArgs.of(1L)),
          "kernel fake_store takes 2 arguments of 8, 8 bytes, was given 1: KernelArgs[1]");
      assertRefused(
          () -> stream.launch(kernel, 1, 1, KernelArgs.of(1L, 1)),
          "argument 1 of kernel fake_store takes 8 bytes, was given 4 (Integer)",
          "give a Long");
      assertRefused(
          () -> stream.launch(kernel, 1, 1, KernelArgs.of(1L, new byte[16])),
          "takes 8 bytes, was given 16 (byte[])");
      assertRefused(
          () -> stream.launch(module.kernel("fake_fill"), 1, 1, KernelArgs.of(1L, 2L)),
          "takes 3 arguments of 8, 8, 4 bytes, was given 2");
      assertRefused(
          () -> stream.launch(module.kernel("fake_fill"), 1, 1, KernelArgs.of(1L, 2L, 3L)),
          "argument 2 of kernel fake_fill takes 4 bytes, was given 8");
      run(kernel);
    }
  }
}

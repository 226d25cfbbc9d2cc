// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import io.fluxccl.InvalidUsage;
import io.fluxccl.NativeLibrary;
import io.fluxccl.device.DeviceKind;
import io.fluxccl.device.Kernel;
import io.fluxccl.settings.Settings;
import java.util.concurrent.atomic.AtomicReferenceArray;

/**
 * A kernel of a {@link CudaModule}. Immutable; any GPU, any thread. The first launch on a GPU loads
 * the module there, and compiles it if necessary. Loading can wait for running kernels. If one of
 * them may wait for this kernel, call {@link #prepare} before.
 */
public final class CudaKernel implements Kernel {
  private static final int LEAST_CAPABILITY_TO_OVERLAP = 90;

  /** Environment variable: {@code 0} launches all kernels as if none could overlap. */
  private static final String OVERLAP_VARIABLE = "FLUXCCL_OVERLAP_LAUNCHES";

  private final CudaModule module;
  private final String name;
  private final int sharedBytes;
  private final boolean overlaps;

  /** The functions by GPU: later launches need no lookup. */
  private final AtomicReferenceArray<CudaModule.Function> loaded;

  /** The result of {@link #overlapping}. */
  private final CudaKernel overlapping;

  CudaKernel(CudaModule module, String name, int sharedBytes) {
    this(module, name, sharedBytes, false, new AtomicReferenceArray<>(CudaDriver.count()));
  }

  private CudaKernel(
      CudaModule module,
      String name,
      int sharedBytes,
      boolean overlaps,
      AtomicReferenceArray<CudaModule.Function> loaded) {
    this.module = module;
    this.name = name;
    this.sharedBytes = sharedBytes;
    this.overlaps = overlaps;
    this.loaded = loaded;
    this.overlapping = overlaps ? this : new CudaKernel(module, name, sharedBytes, true, loaded);
  }

  @Override
  public DeviceKind kind() {
    return DeviceKind.CUDA;
  }

  @Override
  public String name() {
    return name;
  }

  /** Returns the module that contains it. */
  public CudaModule module() {
    return module;
  }

  /**
   * Returns the same kernel with dynamic shared memory at every launch that specifies no amount.
   *
   * @param bytes for each block, up to the limit of the GPU; may exceed 48 KiB
   * @return the kernel; launches fail on a GPU that has less
   * @throws InvalidUsage if it is negative
   */
  public CudaKernel withSharedMemory(int bytes) {
    if (bytes < 0) {
      throw new InvalidUsage("sharedBytes=" + bytes + " for kernel " + name + "; give 0 or more");
    }
    return new CudaKernel(
        module, name, bytes, overlaps, new AtomicReferenceArray<>(CudaDriver.count()));
  }

  /**
   * Returns the same kernel with programmatic dependent launch, which saves most of the gap between
   * two short kernels. Its blocks may start before the previous launch has ended, if that kernel
   * overlaps, too. It is launched normally after other work of the stream's methods, before compute
   * capability 9.0 or CUDA 12.3, and without the native library.
   *
   * <p>The kernel has to call {@code awaitLaunchBefore()} before it touches memory, then {@code
   * letNextLaunchBegin()} ({@code fluxccl/ptx.cuh}). Waiting blocks occupy the GPU: the blocks of
   * both launches must fit there, in addition to all other kernels that must run meanwhile.
   */
  public CudaKernel overlapping() {
    return overlapping;
  }

  private static final class Overlap {
    static final boolean POSSIBLE =
        !"0".equals(Settings.ofProcess().text(OVERLAP_VARIABLE))
            && NativeLibrary.isAvailable()
            && FunctionCalls.canOverlap();
  }

  /** Returns whether it may overlap the launch before it, and the GPU and its driver can do so. */
  boolean overlapsOn(CudaDevice device) {
    return overlaps
        && Overlap.POSSIBLE
        && device.computeCapability() >= LEAST_CAPABILITY_TO_OVERLAP;
  }

  /**
   * Loads the whole module on a GPU, so that a launch there waits for nothing.
   *
   * @param device the GPU
   * @return this kernel
   * @throws InvalidUsage if the source is wrong (with the compiler's words), there is no such
   *     kernel, or the image is not for this GPU
   * @throws io.fluxccl.DeviceFailure if there is no compiler, or the driver refuses
   */
  public CudaKernel prepare(CudaDevice device) {
    loadedOn(device);
    return this;
  }

  /** Returns the default dynamic shared memory of a block, in bytes. */
  int sharedBytes() {
    return sharedBytes;
  }

  /**
   * Returns the function as loaded on a device. If it is not loaded yet, loads its whole module,
   * because loading later may wait for running kernels.
   */
  CudaModule.Function loadedOn(CudaDevice device) {
    CudaModule.Function function = loaded.getAcquire(device.index());
    // A GPU that was closed and opened again has another context.
    if (function == null || function.context != device.context() || module.isClosed()) {
      function = module.loadedOn(device).function(name);
      function.allowShared(sharedBytes);
      loaded.setRelease(device.index(), function); // pairs with getAcquire above
    }
    return function;
  }

  @Override
  public String toString() {
    return "CudaKernel(" + name + " of " + module.name() + ")";
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import jcuda.driver.CUmodule;
import jcuda.driver.JCudaDriver;

/**
 * Kernels that are compiled and loaded together: FluxCCL's own, or a user's from source, PTX or a
 * cubin. The first use on a GPU loads the whole module there, once for each GPU. Thread-safe;
 * {@link #prepare} and the first launch block while they compile and load.
 */
public final class CudaModule implements AutoCloseable {
  private final String name;
  private final Images images;
  private final boolean closeable;

  /** By compute capability. Guarded by itself. */
  private final Map<Integer, KernelImage> made = new HashMap<>();

  private final ConcurrentHashMap<PrimaryContext, LoadedModule> loaded = new ConcurrentHashMap<>();
  private volatile boolean closed;

  /** Makes the images that are loaded on GPUs. */
  interface Images {
    /** Returns the image for GPUs of that compute capability; may take seconds. */
    KernelImage make(int capability);

    /**
     * Returns a replacement for an image that the driver has refused, or throws the refusal if
     * there is none.
     */
    default KernelImage makeInstead(int capability, InvalidUsage refusal) {
      throw refusal;
    }
  }

  CudaModule(String name, Images images, boolean closeable) {
    this.name = name;
    this.images = images;
    this.closeable = closeable;
  }

  /** Returns FluxCCL's own kernels: the same object each time, never closed. */
  public static CudaModule builtIn() {
    return BuiltInKernels.MODULE;
  }

  /**
   * Describes the compilers for CUDA source on this machine, for messages to users. One line
   * describes NVRTC and one nvcc, with the version or the reason why it is missing.
   */
  public static List<String> compilers() {
    return KernelCompiler.PROCESS.describe();
  }

  /**
   * Returns kernels from CUDA C++ source, compiled when first used on a GPU and kept on disk.
   * {@code #include <fluxccl/fluxccl.cuh>} finds FluxCCL's device API.
   *
   * @param name what messages call it, as in {@code scale.cu}
   * @param source the text; kernels are {@code extern "C" __global__}
   * @return the module; the caller closes it
   */
  public static CudaModule fromSource(String name, String source) {
    return fromSource(name, source, CudaCompileOptions.DEFAULT);
  }

  /**
   * Returns kernels from CUDA C++ source.
   *
   * @param name what messages call it, as in {@code scale.cu}
   * @param source the text; kernels are {@code extern "C" __global__}
   * @param options how it is compiled
   * @return the module; the caller closes it
   */
  public static CudaModule fromSource(String name, String source, CudaCompileOptions options) {
    return new CudaModule(
        name,
        capability ->
            KernelCompiler.PROCESS.compile(
                KernelSource.of(name, source, options.includePaths()), options, capability),
        true);
  }

  /**
   * Returns kernels from a source in FluxCCL's jars.
   *
   * @param path of the source, under {@code io/fluxccl/cuda}
   * @param options how it is compiled
   * @return the module; the caller closes it
   */
  public static CudaModule fromJar(String path, CudaCompileOptions options) {
    String source = KernelSource.readPacked(path);
    if (source == null) {
      throw InvalidUsage.of("no jar of FluxCCL on the class path has the source %s", path);
    }
    return fromSource(path, source, options);
  }

  /**
   * Returns kernels from a file, which is read now; headers that lie beside a source are found.
   *
   * @param file named .cu, .ptx, .cubin or .fatbin
   * @return the module; the caller closes it
   * @throws InvalidUsage if it can't be read or is named otherwise
   */
  public static CudaModule fromFile(Path file) {
    return fromFile(file, CudaCompileOptions.DEFAULT);
  }

  /**
   * Returns kernels from a file, which is read now; headers that lie beside a source are found.
   *
   * @param file named .cu, .ptx, .cubin or .fatbin
   * @param options how a source is compiled
   * @return the module; the caller closes it
   * @throws InvalidUsage if it can't be read or is named otherwise
   */
  public static CudaModule fromFile(Path file, CudaCompileOptions options) {
    String fileName = file.getFileName() == null ? "" : file.getFileName().toString();
    String ending = fileName.substring(fileName.lastIndexOf('.') + 1);
    return switch (ending) {
      case "cu" -> {
        Path folder = file.toAbsolutePath().normalize().getParent();
        yield fromSource(file.toString(), KernelSource.read(file), options.withIncludePath(folder));
      }
      case "ptx" -> ofImage(file.toString(), KernelImage.ptx(KernelSource.readBytes(file)));
      case "cubin", "fatbin" ->
          ofImage(file.toString(), new KernelImage(KernelSource.readBytes(file)));
      default ->
          throw InvalidUsage.of(
              "kernels from %s: give a file named .cu, .ptx, .cubin or .fatbin", file);
    };
  }

  /**
   * Returns kernels from PTX, which the driver compiles for the GPU at hand.
   *
   * @param ptx the text, with or without a NUL at its end
   * @return the module; the caller closes it
   */
  public static CudaModule fromPtx(byte[] ptx) {
    return ofImage("PTX", KernelImage.ptx(ptx.clone()));
  }

  /**
   * Returns kernels from native code.
   *
   * @param cubin a cubin or a fat binary
   * @return the module; the caller closes it
   * @throws InvalidUsage if it begins as neither
   */
  public static CudaModule fromCubin(byte[] cubin) {
    return ofImage("cubin", new KernelImage(cubin.clone()));
  }

  private static CudaModule ofImage(String name, KernelImage image) {
    // The driver reads the length from a binary's header. Given other data, it would read past the
    // end of the array.
    if (!image.isPtx() && !image.isElf() && !image.isFatBinary()) {
      throw new InvalidUsage(
          name + ": " + image.bytes().length + " bytes that are no PTX, cubin or fat binary");
    }
    return new CudaModule(name, capability -> image, true);
  }

  /** Returns the name of this module in messages. */
  public String name() {
    return name;
  }

  /**
   * Returns a kernel of this module. The name is checked when the kernel is prepared or launched.
   *
   * @param kernel its name
   * @return the kernel
   */
  public CudaKernel kernel(String kernel) {
    return new CudaKernel(this, kernel, 0);
  }

  /**
   * Compiles it if necessary and loads it on a GPU, so that launches of its kernels there wait for
   * nothing. During this call, no kernel that waits for another rank may run there.
   *
   * @param device the GPU
   * @return this module
   * @throws InvalidUsage if the source is wrong (with the compiler's words) or the image is not for
   *     this GPU
   * @throws io.fluxccl.DeviceFailure if there is no compiler, or the driver refuses
   */
  public CudaModule prepare(CudaDevice device) {
    loadedOn(device);
    return this;
  }

  LoadedModule loadedOn(CudaDevice device) {
    if (closed) {
      throw new InvalidUsage("module " + name + " is closed");
    }
    LoadedModule known = loaded.get(device.context());
    if (known != null) {
      return known;
    }
    loaded.keySet().removeIf(context -> context.users() == 0);
    // The GPUs of a machine are mostly of one model, so the image compiled for one serves all.
    synchronized (made) {
      known = loaded.get(device.context());
      if (known == null) {
        known = load(device.context(), device.computeCapability());
        loaded.put(device.context(), known);
      }
      return known;
    }
  }

  private LoadedModule load(PrimaryContext context, int capability) {
    KernelImage image = made.computeIfAbsent(capability, images::make);
    LoadedModule module;
    try {
      module = LoadedModule.load(context, name, image);
    } catch (InvalidUsage refusal) {
      KernelImage other = images.makeInstead(capability, refusal);
      module = LoadedModule.load(context, name, other);
      made.put(capability, other);
    }
    context.modules.put(this, module.handle); // the context unloads it if it is destroyed first
    return module;
  }

  boolean isClosed() {
    return closed;
  }

  /**
   * Unloads it from all GPUs, on a thread of the library. No kernel of it may be running or be
   * launched afterwards: wait for the stream's completion before. Idempotent. The built-in module
   * stays.
   */
  @Override
  public void close() {
    if (!closeable || closed) {
      return;
    }
    synchronized (made) {
      closed = true;
      loaded.keySet().forEach(this::unload);
      loaded.clear();
      made.clear();
    }
  }

  private void unload(PrimaryContext context) {
    if (context.tryRetain()) { // a destroyed context has unloaded its modules
      CUmodule module = context.modules.remove(this);
      context.freeLater(
          () -> context.check(JCudaDriver.cuModuleUnload(module), "cuModuleUnload(" + name + ")"));
    }
  }

  /** Prepares it if that is possible. If not, logs the reason, and the first use throws it. */
  void prepareIfPossible(CudaDevice device) {
    try {
      prepare(device);
    } catch (FluxCclException e) {
      BuiltInKernels.LOG.warn(
          "{} can't be used on GPU {}: {}", name, device.index(), e.getMessage());
    }
  }

  @Override
  public String toString() {
    return "CudaModule(" + name + ")";
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import io.fluxccl.DeviceFailure;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.NativeLibrary;
import io.fluxccl.concurrent.Lifecycle;
import io.fluxccl.device.KernelArgs;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import jcuda.driver.CUfunction;
import jcuda.driver.CUfunction_attribute;
import jcuda.driver.CUmodule;
import jcuda.driver.CUresult;
import jcuda.driver.JCudaDriver;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Kernels that are compiled and loaded together: FluxCCL's own, or a user's from source, PTX or a
 * cubin. The first use on a GPU loads the whole module there, once for each GPU. Thread-safe;
 * {@link #prepare} and the first launch block while they compile and load.
 */
public final class CudaModule implements AutoCloseable {
  private static final Logger LOG = LoggerFactory.getLogger(CudaModule.class);

  private final String name;
  private final Images images;
  private final boolean closeable;

  /** By compute capability. Guarded by itself. */
  private final Map<Integer, Image> made = new HashMap<>();

  private final ConcurrentHashMap<PrimaryContext, Loaded> loaded = new ConcurrentHashMap<>();
  private final Lifecycle lifecycle;

  /** Makes the images that are loaded on GPUs. */
  interface Images {
    /** Returns the image for GPUs of that compute capability; may take seconds. */
    Image make(int capability);

    /**
     * Returns a replacement for an image that the driver has refused, or throws the refusal if
     * there is none.
     */
    default Image makeInstead(int capability, InvalidUsage refusal) {
      throw refusal;
    }
  }

  CudaModule(String name, Images images, boolean closeable) {
    this.name = name;
    this.images = images;
    this.closeable = closeable;
    this.lifecycle = new Lifecycle("module " + name);
    lifecycle.own(this::unload);
  }

  /** Returns FluxCCL's own kernels: the same object each time, never closed. */
  public static CudaModule builtIn() {
    return BuiltIn.MODULE;
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
                KernelCompiler.Source.of(name, source, options.includePaths()),
                options,
                capability),
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
    String source = KernelCompiler.Source.readPacked(path);
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
        yield fromSource(
            file.toString(), KernelCompiler.Source.read(file), options.withIncludePath(folder));
      }
      case "ptx" -> ofImage(file.toString(), Image.ptx(KernelCompiler.Source.readBytes(file)));
      case "cubin", "fatbin" ->
          ofImage(file.toString(), new Image(KernelCompiler.Source.readBytes(file)));
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
    return ofImage("PTX", Image.ptx(ptx.clone()));
  }

  /**
   * Returns kernels from native code.
   *
   * @param cubin a cubin or a fat binary
   * @return the module; the caller closes it
   * @throws InvalidUsage if it begins as neither
   */
  public static CudaModule fromCubin(byte[] cubin) {
    return ofImage("cubin", new Image(cubin.clone()));
  }

  private static CudaModule ofImage(String name, Image image) {
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

  Loaded loadedOn(CudaDevice device) {
    lifecycle.checkOpen();
    Loaded known = loaded.get(device.context());
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

  private Loaded load(PrimaryContext context, int capability) {
    Image image = made.computeIfAbsent(capability, images::make);
    Loaded module;
    try {
      module = new Loaded(context, image);
    } catch (InvalidUsage refusal) {
      Image other = images.makeInstead(capability, refusal);
      module = new Loaded(context, other);
      made.put(capability, other);
    }
    context.modules.put(this, module.handle); // the context unloads it if it is destroyed first
    return module;
  }

  boolean isClosed() {
    return lifecycle.isClosed();
  }

  /**
   * Unloads it from all GPUs, on a thread of the library. No kernel of it may be running or be
   * launched afterwards: wait for the stream's completion before. Idempotent. The built-in module
   * stays.
   */
  @Override
  public void close() {
    if (closeable) {
      lifecycle.close();
    }
  }

  private void unload() {
    synchronized (made) {
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
      LOG.warn("{} can't be used on GPU {}: {}", name, device.index(), e.getMessage());
    }
  }

  @Override
  public String toString() {
    return "CudaModule(" + name + ")";
  }

  /** A module in one context, all of it on the GPU. Thread-safe. */
  final class Loaded {
    /** Results that are caused by the image, not by the device. */
    private static final Set<Integer> OF_THE_IMAGE =
        Set.of(
            CUresult.CUDA_ERROR_INVALID_IMAGE,
            CUresult.CUDA_ERROR_NO_BINARY_FOR_GPU,
            CUresult.CUDA_ERROR_INVALID_PTX,
            CUresult.CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
            CUresult.CUDA_ERROR_INVALID_SOURCE);

    private final PrimaryContext context;
    private final CUmodule handle = new CUmodule();
    private final ConcurrentHashMap<String, Function> functions = new ConcurrentHashMap<>();

    /**
     * Loads an image.
     *
     * @throws InvalidUsage if this GPU and driver cannot run it
     * @throws DeviceFailure if the driver fails otherwise
     */
    private Loaded(PrimaryContext context, Image image) {
      this.context = context;
      context.makeCurrent();
      int result = JCudaDriver.cuModuleLoadData(handle, image.bytes());
      if (result != CUresult.CUDA_SUCCESS) {
        throw refused(image, result);
      }
      if (NativeLibrary.isAvailable()) {
        // Loading a function at its first launch could wait for a kernel that waits for that
        // launch.
        result = FunctionCalls.loadAll(CudaPointer.valueOf(handle));
        if (result != CUresult.CUDA_SUCCESS && result != CUresult.CUDA_ERROR_NOT_SUPPORTED) {
          JCudaDriver.cuModuleUnload(handle);
          context.check(result, "cuFuncLoad(all of " + name + ")");
        }
      }
    }

    private RuntimeException refused(Image image, int result) {
      RuntimeException failure =
          CudaError.of(result, context.ordinal, "cuModuleLoadData(" + name + ")");
      if (!OF_THE_IMAGE.contains(result)) {
        return failure;
      }
      String log = "";
      if (image.isPtx() && NativeLibrary.isAvailable()) {
        log = new String(FunctionCalls.explain(image.bytes()), StandardCharsets.UTF_8).strip();
      }
      return new InvalidUsage(failure.getMessage() + (log.isEmpty() ? "" : "\n" + log), failure);
    }

    /**
     * Returns one of its kernels.
     *
     * @throws InvalidUsage if it has none of that name
     */
    Function function(String function) {
      return functions.computeIfAbsent(function, this::find);
    }

    private Function find(String function) {
      context.makeCurrent();
      CUfunction found = new CUfunction();
      int result = JCudaDriver.cuModuleGetFunction(found, handle, function);
      if (result == CUresult.CUDA_ERROR_NOT_FOUND) {
        throw InvalidUsage.of(
            "%s has no kernel %s; is it extern \"C\" __global__, and spelt like that?",
            name, function);
      }
      context.check(result, "cuModuleGetFunction(" + name + ", " + function + ")");
      return new Function(context, function, found);
    }
  }

  /** A kernel of a loaded module. Thread-safe. */
  static final class Function {
    final PrimaryContext context;
    final CUfunction handle;
    final Signature signature;
    private final String name;
    private int allowedShared; // guarded by this

    private Function(PrimaryContext context, String name, CUfunction handle) {
      this.context = context;
      this.name = name;
      this.handle = handle;
      this.signature = Signature.of(handle);
      this.allowedShared =
          attribute(CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
      context.reserveStack(attribute(CUfunction_attribute.CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES));
    }

    /** Returns an attribute of the function. The query also loads the function onto the device. */
    private int attribute(int attribute) {
      int[] value = new int[1];
      context.check(
          JCudaDriver.cuFuncGetAttribute(value, attribute, handle),
          "cuFuncGetAttribute(" + name + ", " + attribute + ")");
      return value[0];
    }

    /** Raises the limit of dynamic shared memory for launches. Never lowers it. */
    synchronized void allowShared(int bytes) {
      if (bytes > allowedShared) {
        context.makeCurrent();
        context.check(
            JCudaDriver.cuFuncSetAttribute(
                handle,
                CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                bytes),
            "cuFuncSetAttribute(" + name + ", " + bytes + " bytes of dynamic shared memory)");
        allowedShared = bytes;
      }
    }
  }

  /**
   * The number and the sizes of a kernel's parameters. For each parameter, the driver reads that
   * number of bytes from the address that it is given, without a check. Known with CUDA 12.4 or
   * later and the native library; otherwise arguments are not checked.
   *
   * @param sizes bytes of each parameter; null when they are unknown
   */
  record Signature(int... sizes) {
    /** The signature of a kernel whose parameters are unknown. */
    static final Signature UNKNOWN = new Signature((int[]) null);

    private static final int MOST_PARAMETERS = 4096;

    /** Queries the driver; the function's context is current. */
    static Signature of(CUfunction function) {
      if (!NativeLibrary.isAvailable()) {
        return UNKNOWN;
      }
      long handle = CudaPointer.valueOf(function);
      long[] offsetAndSize = new long[2];
      int[] sizes = new int[MOST_PARAMETERS];
      for (int i = 0; i < MOST_PARAMETERS; i++) {
        int result = FunctionCalls.parameter(handle, i, offsetAndSize);
        if (result == CUresult.CUDA_ERROR_INVALID_VALUE) {
          return new Signature(Arrays.copyOf(sizes, i));
        }
        if (result != CUresult.CUDA_SUCCESS) {
          return UNKNOWN;
        }
        sizes[i] = (int) offsetAndSize[1];
      }
      return UNKNOWN;
    }

    /**
     * Refuses a number of arguments that differs from the number of parameters.
     *
     * @throws InvalidUsage saying what is wanted
     */
    void checkCount(String kernel, KernelArgs args) {
      if (sizes != null && args.count() != sizes.length) {
        throw new InvalidUsage(
            "kernel " + kernel + " takes " + this + ", was given " + args.count() + ": " + args);
      }
    }

    /**
     * Refuses an argument whose size differs from its parameter's.
     *
     * @param index of an argument, within the count
     * @param length its bytes
     * @throws InvalidUsage saying what is wanted
     */
    void checkLength(String kernel, KernelArgs args, int index, int length) {
      if (sizes != null && length != sizes[index]) {
        throw InvalidUsage.of(
            "argument %s of kernel %s takes %s bytes, was given %s (%s): %s; the kernel takes %s",
            index,
            kernel,
            sizes[index],
            length,
            args.get(index, Object.class).getClass().getSimpleName(),
            advice(sizes[index]),
            this);
      }
    }

    private static String advice(int size) {
      return switch (size) {
        case Integer.BYTES -> "give an Integer or a Float";
        case Long.BYTES -> "give a Long, a Double or a buffer";
        default -> "give a byte[] or ByteBuffer with the structure";
      };
    }

    @Override
    public String toString() {
      if (sizes == null || sizes.length == 0) {
        return sizes == null ? "unknown arguments" : "0 arguments";
      }
      return sizes.length
          + " arguments"
          + IntStream.of(sizes)
              .mapToObj(Integer::toString)
              .collect(Collectors.joining(", ", " of ", " bytes"));
    }
  }

  /**
   * An image that the driver loads: a cubin, a fat binary or PTX.
   *
   * @param bytes the image; PTX ends in a NUL, as the driver requires
   */
  record Image(byte[] bytes) {
    private static final byte[] ELF = {0x7f, 'E', 'L', 'F'};
    private static final byte[] FAT_BINARY = {0x50, (byte) 0xed, 0x55, (byte) 0xba};

    /** Returns PTX text, with a NUL appended if it does not end in one. */
    static Image ptx(byte[] bytes) {
      boolean ended = bytes.length > 0 && bytes[bytes.length - 1] == 0;
      return new Image(ended ? bytes : Arrays.copyOf(bytes, bytes.length + 1));
    }

    /** Returns whether it is text that the driver compiles. */
    boolean isPtx() {
      return bytes.length > 0 && bytes[bytes.length - 1] == 0 && !isElf() && !isFatBinary();
    }

    /** Returns whether it begins as a cubin does. */
    boolean isElf() {
      return startsWith(ELF);
    }

    /** Returns whether it begins as a fat binary does. */
    boolean isFatBinary() {
      return startsWith(FAT_BINARY);
    }

    private boolean startsWith(byte[] magic) {
      return bytes.length > 4 && Arrays.equals(bytes, 0, 4, magic, 0, 4);
    }
  }

  /**
   * FluxCCL's own kernels: the fat binary of the jar {@code fluxccl-kernels}. Without that jar, or
   * if the driver is older than the binary, the sources of this jar are compiled at run time.
   *
   * @param fatBinary the resource that holds them, if there is one
   * @param compiler makes them otherwise
   * @param options how they are compiled
   */
  record BuiltIn(String fatBinary, KernelCompiler compiler, CudaCompileOptions options)
      implements Images {
    static final CudaModule MODULE =
        new CudaModule(
            "FluxCCL's built-in kernels",
            new BuiltIn(
                "io/fluxccl/cuda/fluxccl.fatbin",
                KernelCompiler.PROCESS,
                CudaCompileOptions.DEFAULT),
            false);

    private static final String SOURCE = "builtin.cu";

    @Override
    public Image make(int capability) {
      byte[] binary = binary();
      return binary != null
          ? new Image(binary)
          : compile(
              capability,
              "their fat binary is not on the class path (add the Maven dependency"
                  + " io.fluxccl:fluxccl-kernels)");
    }

    @Override
    public Image makeInstead(int capability, InvalidUsage refusal) {
      if (binary() == null) {
        throw refusal; // it was compiled here already
      }
      return compile(capability, "the driver refuses their fat binary: " + refusal.getMessage());
    }

    private Image compile(int capability, String why) {
      String source = KernelCompiler.Source.readPacked(SOURCE);
      if (source == null) {
        throw new DeviceFailure(
            0, "NO_KERNELS", "FluxCCL's built-in kernels: " + why + ", and no sources of them");
      }
      LOG.warn(
          "FluxCCL's built-in kernels: {}; all are compiled here, which takes minutes unless an"
              + " earlier result is on disk",
          why);
      try {
        return compiler.compile(
            KernelCompiler.Source.of(SOURCE, source, List.of()), options, capability);
      } catch (FluxCclException e) {
        throw new DeviceFailure(
            0, "NO_KERNELS", "FluxCCL's built-in kernels: " + why + ". " + e.getMessage(), e);
      }
    }

    private byte[] binary() {
      // Of the class loader, not of the class: on the module path the jar is another module.
      try (InputStream in = BuiltIn.class.getClassLoader().getResourceAsStream(fatBinary)) {
        return in == null ? null : in.readAllBytes();
      } catch (IOException e) {
        throw new DeviceFailure(0, "NO_KERNELS", "reading " + fatBinary + " failed: " + e, e);
      }
    }
  }
}

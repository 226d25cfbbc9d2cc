// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import io.fluxccl.DeviceFailure;
import io.fluxccl.InvalidUsage;
import io.fluxccl.NativeLibrary;
import io.fluxccl.OptionalLibrary;
import io.fluxccl.Text;
import java.io.IOException;
import java.util.Locale;
import java.util.Optional;
import jcuda.NativePointerObject;
import jcuda.driver.CUdevice;
import jcuda.driver.CUdevice_P2PAttribute;
import jcuda.driver.CUresult;
import jcuda.driver.JCudaDriver;
import org.slf4j.LoggerFactory;

/** Reports whether there is a CUDA driver, and how many GPUs this process sees. Checked once. */
public final class CudaDriver {
  private static final String CONNECTIONS = "CUDA_DEVICE_MAX_CONNECTIONS";
  private static final int ENOUGH_CONNECTIONS = 8;
  private static final String TEMPORARY_DIRECTORY = "java.io.tmpdir";
  private static final String UNAVAILABLE;
  private static final int COUNT;

  static {
    int count = 0;
    String unavailable = null;
    try {
      // Loading a kernel at its first launch could deadlock: the driver waits for a running kernel,
      // which waits for that launch.
      NativeLibrary.setEnvironmentDefault("CUDA_MODULE_LOADING", "EAGER");
      // Streams that share one of the GPU's queues wait for each other's work. The default of 8
      // queues is not enough.
      NativeLibrary.setEnvironmentDefault(CONNECTIONS, "32");
      warningAbout(System.getenv(CONNECTIONS))
          .ifPresent(LoggerFactory.getLogger(CudaDriver.class)::warn);
      loadJCuda();
      int result = JCudaDriver.cuInit(0);
      int[] found = new int[1];
      if (result == CUresult.CUDA_SUCCESS) {
        result = JCudaDriver.cuDeviceGetCount(found);
        count = found[0];
      }
      if (result != CUresult.CUDA_SUCCESS) {
        unavailable = "the CUDA driver answers " + CUresult.stringFor(result);
      } else if (count == 0) {
        unavailable = "the CUDA driver sees no GPU; is CUDA_VISIBLE_DEVICES empty?";
      }
    } catch (LinkageError e) {
      LoggerFactory.getLogger(CudaDriver.class).debug("no CUDA", e);
      unavailable =
          Text.of(
              "no CUDA driver: %s",
              OptionalLibrary.JCUDA
                  .missingReason()
                  .orElse("libcuda.so.1 or JCuda's native library can't be loaded"));
    }
    UNAVAILABLE = unavailable;
    COUNT = count;
  }

  private CudaDriver() {}

  /**
   * Loads JCuda's native library. JCuda unpacks it to a fixed name in {@code java.io.tmpdir} and
   * loads a file that exists there already. Two processes that start together may load half a file,
   * and every user with write access can replace the library. JCuda reads the property at that
   * moment. This method therefore sets it to a new private directory for the duration of the call.
   *
   * @throws LinkageError if the library, or the driver library that it loads, is missing
   */
  private static void loadJCuda() {
    try (TemporaryFolder folder = TemporaryFolder.create("fluxccl-jcuda")) {
      String before = System.getProperty(TEMPORARY_DIRECTORY);
      System.setProperty(TEMPORARY_DIRECTORY, folder.path().toString());
      try {
        JCudaDriver.setExceptionsEnabled(false); // the class loads the library first
      } finally {
        System.setProperty(TEMPORARY_DIRECTORY, before); // what is loaded stays in memory
      }
    } catch (IOException e) {
      throw (LinkageError)
          new UnsatisfiedLinkError("no directory for JCuda's library: " + e).initCause(e);
    }
  }

  /**
   * Returns the native value of a JCuda handle, as C functions take it.
   *
   * @param handle a stream, context, module and so on
   */
  public static long valueOf(NativePointerObject handle) {
    return CudaPointer.valueOf(handle);
  }

  /** Returns how many GPUs there are; 0 when there is no driver. */
  public static int count() {
    return COUNT;
  }

  /**
   * Returns the PCI address of a GPU, as the operating system writes it: {@code 0000:3b:00.0}. Does
   * not open the GPU.
   *
   * @param index from 0
   * @return its PCI bus id
   * @throws io.fluxccl.DeviceFailure if there is no such GPU
   */
  public static String pciBusId(int index) {
    String[] id = new String[1];
    CudaError.check(
        JCudaDriver.cuDeviceGetPCIBusId(id, 32, device(index)), index, "cuDeviceGetPCIBusId");
    return id[0].trim().toLowerCase(Locale.ROOT);
  }

  /** Returns the driver's handle of a GPU. */
  static CUdevice device(int index) {
    CUdevice device = new CUdevice();
    CudaError.check(JCudaDriver.cuDeviceGet(device, index), index, "cuDeviceGet");
    return device;
  }

  /**
   * Returns whether kernels of one GPU can reach memory of another; true for the same GPU. Does not
   * open the GPUs.
   */
  static boolean canReach(int from, int to) {
    if (from == to) {
      return true;
    }
    int[] can = new int[1];
    CudaError.check(
        JCudaDriver.cuDeviceCanAccessPeer(can, device(from), device(to)),
        from,
        "cuDeviceCanAccessPeer");
    return can[0] != 0;
  }

  /**
   * Returns the link by which kernels of one GPU reach memory of another. Does not open the GPUs.
   *
   * @param from the index of a GPU
   * @param to the index of another GPU
   * @return the link
   * @throws DeviceFailure if there is no such GPU
   */
  public static GpuLink link(int from, int to) {
    if (!canReach(from, to)) {
      return GpuLink.NONE;
    }
    // All of CUDA's atomic operations work over NVLink. PCIe has three of them at most.
    int[] atomics = new int[1];
    CudaError.check(
        JCudaDriver.cuDeviceGetP2PAttribute(
            atomics,
            CUdevice_P2PAttribute.CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED,
            device(from),
            device(to)),
        from,
        "cuDeviceGetP2PAttribute");
    return atomics[0] != 0 ? GpuLink.NVLINK : GpuLink.PCIE;
  }

  /**
   * Returns a warning if the environment sets too few hardware queues.
   *
   * @param connections the environment's value, or null
   */
  static Optional<String> warningAbout(String connections) {
    if (connections == null || !connections.matches("[1-" + (ENOUGH_CONNECTIONS - 1) + "]")) {
      return Optional.empty();
    }
    return Optional.of(
        Text.of(
            "%s=%s: only that many streams of a GPU can run independently; a kernel that waits"
                + " for one of another stream may wait for ever. Unset it, or set 32",
            CONNECTIONS, connections));
  }

  /** Returns the reason why CUDA is unavailable, or empty. */
  public static Optional<String> unavailableBecause() {
    return Optional.ofNullable(UNAVAILABLE);
  }

  /**
   * Checks that a GPU can be opened. Uses no class of JCuda, which may be missing.
   *
   * @param index of the GPU, from 0
   * @throws DeviceFailure if there is no driver
   * @throws InvalidUsage if there is no such GPU
   */
  static void requireGpu(int index) {
    if (UNAVAILABLE != null) {
      throw new DeviceFailure(0, "NO_CUDA", "GPU " + index + " can't be opened: " + UNAVAILABLE);
    }
    if (index < 0 || index >= COUNT) {
      throw new InvalidUsage(
          "GPU " + index + " is outside 0 to " + (COUNT - 1) + " of this process");
    }
  }
}

package io.fluxccl.cli;

import io.fluxccl.FluxCclException;
import io.fluxccl.NativeLibrary;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.device.cuda.CudaDriver;
import io.fluxccl.device.cuda.CudaModule;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** What {@code info} says of GPUs. */
final class GpuReport {
  private GpuReport() {}

  /** What GPUs need, by name: available, or why not. */
  static Map<String, String> support() {
    Map<String, String> support = new LinkedHashMap<>();
    support.put(
        "CUDA driver",
        CudaDriver.unavailableBecause()
            .map(why -> "not available, because " + why)
            .orElseGet(() -> "available, sees " + CudaDriver.count() + " GPUs"));
    support.put(
        "libfluxccl",
        NativeLibrary.unavailableBecause()
            .map(why -> "not available, because " + why)
            .orElse("available"));
    support.put("compilers", String.join("; ", CudaModule.compilers()));
    return support;
  }

  /** A line for each GPU, with the numbers of those whose memory it reaches. */
  static List<String> devices() {
    List<String> lines = new ArrayList<>();
    for (int i = 0; i < CudaDriver.count(); i++) {
      lines.add("cuda:" + i + ": " + describe(i));
    }
    return lines;
  }

  private static String describe(int index) {
    try (CudaDevice gpu = CudaDevice.open(index)) {
      String node = gpu.numaNode() < 0 ? "" : ", NUMA node " + gpu.numaNode();
      return gpu.description() + node + ", reaches " + peers(gpu);
    } catch (FluxCclException e) {
      return "can't be used: " + e.getMessage();
    }
  }

  private static String peers(CudaDevice gpu) {
    List<String> reached = new ArrayList<>();
    for (int i = 0; i < CudaDriver.count(); i++) {
      if (i != gpu.index() && gpu.canAccessPeer(i)) {
        reached.add("cuda:" + i);
      }
    }
    return reached.isEmpty() ? "no other GPU" : String.join(" ", reached);
  }
}

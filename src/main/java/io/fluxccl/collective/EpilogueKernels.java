// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.DataType;
import io.fluxccl.Experimental;
import io.fluxccl.device.DeviceHandle;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.cuda.CudaKernel;
import io.fluxccl.device.cuda.CudaModule;
import java.util.EnumMap;
import java.util.Locale;
import java.util.Map;

/** The kernels of an epilogue: the twin of {@code fused_rows.cuh}, which defines them. */
@Experimental
public final class EpilogueKernels {
  /**
   * The library's own, by the names that fused.cu gives them; apart, because JCuda may be missing.
   */
  static final class BuiltIn {
    static final EpilogueKernels NORM = new EpilogueKernels(CudaModule.builtIn(), "norm");
    static final EpilogueKernels NORM_QUANTIZED =
        new EpilogueKernels(CudaModule.builtIn(), "normQuantized");

    private BuiltIn() {}
  }

  /** The reduction that a kernel does before the epilogue, and the shape of its blocks. */
  public enum Variant {
    /** Reduces rows of two ranks in one shot; a thread has one word of 16 bytes. */
    PAIR1(1, 512),
    /** Like PAIR1, with blocks that fill a multiprocessor. For few, long rows. */
    WIDE1(1, 1024),
    /** Like PAIR1, with two words for each thread; two blocks fit on a multiprocessor. */
    PAIR2(2, 512),
    /** Like PAIR2, with four words for each thread. */
    PAIR4(4, 512),
    /** Reduces rows of any number of ranks in one shot. */
    ONE2(2, 512),
    /** Reduces rows in two shots. */
    TWO2(2, 512),
    /** Takes rows that are reduced already. */
    LOCAL4(4, 1024);

    private static final int WORD = 16;
    private static final int WARP = 32;

    private final int words;
    private final int mostThreads;

    Variant(int words, int mostThreads) {
      this.words = words;
      this.mostThreads = mostThreads;
    }

    /** Returns whether a block can hold a row of this many bytes. */
    public boolean holds(long rowBytes) {
      return rowBytes <= (long) WORD * words * mostThreads;
    }

    /** Returns the threads of a block for a row. */
    public int threads(long rowBytes) {
      long perWarp = (long) WORD * words * WARP;
      return (int) ((rowBytes + perWarp - 1) / perWarp) * WARP;
    }
  }

  private static final int BLOCKS_PER_MULTIPROCESSOR = 16;

  private final String name;
  private final Map<Variant, Map<DataType, CudaKernel>> kernels = new EnumMap<>(Variant.class);

  EpilogueKernels(CudaModule module, String name) {
    this.name = name;
    for (Variant variant : Variant.values()) {
      Map<DataType, CudaKernel> byType = new EnumMap<>(DataType.class);
      for (DataType type : FusedAllReduce.TYPES) {
        String label = variant.name().toLowerCase(Locale.ROOT) + "_" + type.label();
        byType.put(type, module.kernel("fluxccl_fused_" + name + "_" + label));
      }
      kernels.put(variant, byType);
    }
  }

  /** Returns the name of the epilogue. */
  public String name() {
    return name;
  }

  /**
   * Launches the epilogue alone, on an input that is summed already.
   *
   * @param call whose rows these are
   * @param argument the epilogue's structure
   * @param multiprocessors that this rank has to itself
   */
  public void launchAlone(
      DeviceStream stream, FusedAllReduce call, DeviceHandle argument, int multiprocessors) {
    int most = Math.max(1, BLOCKS_PER_MULTIPROCESSOR * multiprocessors);
    int blocks = (int) Math.min(most, call.rows());
    // Blocks that wait must leave room for the kernels of ranks for which the all-reduce waits.
    boolean overlaps = blocks <= multiprocessors / 2;
    CudaKernel kernel = kernel(Variant.LOCAL4, call.type());
    stream.launch(
        overlaps ? kernel.overlapping() : kernel,
        blocks,
        Variant.LOCAL4.threads(call.rowBytes()),
        KernelArgs.of(
            call.input().address(), call.rows(), call.rowBytes() / FusedAllReduce.WORD, argument));
  }

  /** Returns a kernel, which is loaded when it is first launched or prepared. */
  public CudaKernel kernel(Variant variant, DataType type) {
    return kernels.get(variant).get(type);
  }
}

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
    /** Adds up rows of any number of ranks in one shot; a warp has a group of a row. */
    ONE0(0, 128),
    /** ONE0 of two ranks. */
    ONE2(0, 128),
    /** ONE0 of four ranks. */
    ONE4(0, 128),
    /** Like ONE0, in two shots. */
    TWO0(0, 128),
    /** TWO0 of two ranks. */
    TWO2(0, 128),
    /** TWO0 of four ranks. */
    TWO4(0, 128),
    /** ONE2 with a block for each row; a thread has a word of it. */
    PAIR_WIDE(1, 1024),
    /** Like PAIR_WIDE, with two words for each thread; two blocks fit on a multiprocessor. */
    PAIR(2, 512),
    /** Reduces rows in one shot; a thread of a block has two words of a row. */
    ROW_ONE(2, 512),
    /** Like ROW_ONE, in two shots. */
    ROW_TWO(2, 512),
    /** Takes rows that are reduced already. */
    LOCAL(4, 1024);

    private static final int WORD = 16;
    private static final int WARP = 32;

    private final int words;
    private final int mostThreads;

    Variant(int words, int mostThreads) {
      this.words = words;
      this.mostThreads = mostThreads;
    }

    /** Returns that of warps, for {@link AddRmsNorm}. */
    public static Variant ofWarps(boolean inOneShot, int nRanks) {
      int compiledFor = nRanks == 2 || nRanks == 4 ? nRanks : 0;
      return valueOf((inOneShot ? "ONE" : "TWO") + compiledFor);
    }

    /** Returns whether warps work on their own, instead of a block on a row. */
    public boolean isOfWarps() {
      return words == 0;
    }

    /** Returns whether a block can hold a row of this many bytes. */
    public boolean holds(long rowBytes) {
      return isOfWarps() || rowBytes <= (long) WORD * words * mostThreads;
    }

    /** Returns the threads of a block, for rows of this many bytes. */
    public int threads(long rowBytes) {
      long perWarp = (long) WORD * words * WARP;
      return isOfWarps() ? mostThreads : (int) ((rowBytes + perWarp - 1) / perWarp) * WARP;
    }

    /** Returns the number of groups of a row, each of which a warp can have. */
    public static long groups(long rowBytes) {
      return (rowBytes + WORD * WARP - 1) / (WORD * WARP);
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
    CudaKernel kernel = kernel(Variant.LOCAL, call.type());
    stream.launch(
        overlaps ? kernel.overlapping() : kernel,
        blocks,
        Variant.LOCAL.threads(call.rowBytes()),
        KernelArgs.of(
            call.input().address(), call.rows(), call.rowBytes() / FusedAllReduce.WORD, argument));
  }

  /** Returns a kernel, which is loaded when it is first launched or prepared. */
  public CudaKernel kernel(Variant variant, DataType type) {
    return kernels.get(variant).get(type);
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.matmul;

import io.fluxccl.DataType;
import io.fluxccl.FluxCclException;
import io.fluxccl.collective.KernelStruct;
import io.fluxccl.collective.RankTopology;
import io.fluxccl.collective.Registration;
import io.fluxccl.concurrent.Lifecycle;
import io.fluxccl.device.AbortFlag;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.cuda.CudaCompileOptions;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.device.cuda.CudaKernel;
import io.fluxccl.device.cuda.CudaModule;
import io.fluxccl.device.cuda.CudaStream;
import java.util.ArrayList;
import java.util.List;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** The work of {@link OverlapSteps} on a GPU: cuBLASLt, copy engines and small kernels. */
final class CudaOverlap implements OverlapSteps.Multiplier {
  /** {@code kMaxRanks} of overlapped_product.cu. */
  static final int MAX_RANKS = 16;

  /** The bytes of the words by which copy engines announce rows. */
  static final int WORDS_BYTES = (MAX_RANKS + 1) * Integer.BYTES;

  /** The alignment of all matrices, in bytes. */
  static final int WORD = 16;

  private static final Logger LOG = LoggerFactory.getLogger(CudaOverlap.class);
  private static final String SOURCE = "products/overlapped_product.cu";
  private static final int AWAIT_THREADS = 32;
  private static final int SUM_THREADS = 512;
  private static final int SUM_BLOCKS_PER_MULTIPROCESSOR = 2;
  private static final int NUMBER_OFFSET = MAX_RANKS * Integer.BYTES;

  private final CudaDevice device;
  private final ProductShape shape;
  private final Lifecycle lifecycle = new Lifecycle("overlapped products");

  /** Plans for each power of two as the typical number of rows, by exponent. */
  private final List<MatrixProduct> plans = new ArrayList<>();

  /** Null if pieces are not possible. */
  private final CudaKernel await;

  private final CudaKernel add;

  private final RankTopology topology;

  // Set by bind.
  private Registration memory;
  private long slotsOffset;
  private AbortFlag abort;

  CudaOverlap(CudaDevice device, ProductShape shape, RankTopology topology) {
    this.device = device;
    this.shape = shape;
    this.topology = topology;
    CudaKernel[] kernels = new CudaKernel[2];
    try {
      planAll(lifecycle.own(new MatrixProducts(device)));
      if (canMap(topology) && isAligned()) {
        kernels = kernels();
      }
    } catch (RuntimeException | Error e) {
      lifecycle.close();
      throw e;
    }
    this.await = kernels[0];
    this.add = kernels[1];
  }

  private CudaKernel[] kernels() {
    CudaKernel[] kernels = new CudaKernel[2];
    try {
      CudaModule module = lifecycle.own(CudaModule.fromJar(SOURCE, CudaCompileOptions.DEFAULT));
      kernels[1] = module.kernel("fluxccl_product_add_" + shape.type().label()).prepare(device);
      kernels[0] = module.kernel("fluxccl_product_await").prepare(device);
    } catch (FluxCclException e) {
      LOG.warn(
          "products on {} do not overlap with communication, because their kernels can't be"
              + " compiled: {}",
          device,
          e.getMessage());
    }
    return kernels;
  }

  private void planAll(MatrixProducts products) {
    DataType type = shape.type();
    for (int i = 0; i <= planOf(shape.maxRows()); i++) {
      int typical = (int) Math.min(1L << i, shape.maxRows());
      plans.add(products.plan(shape.outputs(), shape.inputs(), type, type, typical));
    }
  }

  /** Returns the exponent of the least power of two that is not less than a number of rows. */
  static int planOf(int rows) {
    return Integer.SIZE - Integer.numberOfLeadingZeros(rows - 1);
  }

  private static boolean canMap(RankTopology topology) {
    return topology.nRanks() > 1 && topology.nRanks() <= MAX_RANKS && topology.allMapped();
  }

  /** Returns whether all rows begin at multiples of a word. */
  private boolean isAligned() {
    return shape.inBytes(1) % WORD == 0 && shape.outBytes(1) % WORD == 0;
  }

  @Override
  public boolean canOverlap() {
    return await != null;
  }

  @Override
  public void multiply(
      DeviceStream stream, int rows, DeviceBuffer in, DeviceBuffer weights, DeviceBuffer out) {
    plans.get(planOf(rows)).enqueue(stream, rows, in, weights, out);
  }

  /**
   * Learns where the ranks' memory is mapped; blocks shortly.
   *
   * @param registered of all ranks: the words, and from an offset on slots that peers write
   */
  void bind(Registration registered, long offset, AbortFlag flag) {
    memory = registered;
    slotsOffset = offset;
    abort = flag;
    new KernelStruct(Integer.BYTES).putInt(1).upload(registered.buffer(), NUMBER_OFFSET);
  }

  /**
   * Enqueues a copy to a slot of a peer's memory and announces it, both by a copy engine. It copies
   * to a word after it has copied the rows.
   *
   * @param offset in the slots
   */
  void copy(CudaStream stream, int peer, long offset, DeviceBuffer rows) {
    int rank = topology.rank();
    stream.copyAsync(memory.addressOn(peer) + slotsOffset + offset, rows.address(), rows.size());
    stream.copyAsync(
        memory.addressOn(peer) + (long) rank * Integer.BYTES,
        memory.addressOn(rank) + NUMBER_OFFSET,
        Integer.BYTES);
  }

  /**
   * Enqueues a wait for the copies of peers to this rank.
   *
   * @param first of the peers
   * @param count how many; this rank among them is not waited for
   * @param isLast whether the operation waits no more; all its copies are enqueued before
   */
  void await(DeviceStream stream, int first, int count, boolean isLast) {
    int peers = (((1 << count) - 1) << first) & ~(1 << topology.rank());
    stream.launch(
        await, 1, AWAIT_THREADS, KernelArgs.of(memory.buffer(), abort, peers, isLast ? 1 : 0));
  }

  /**
   * Enqueues the sum of a rank's rows: its own and those that peers have copied, in rank order.
   *
   * @param received a slot of the rows for each rank
   */
  void add(DeviceStream stream, DeviceBuffer received, DeviceBuffer own, DeviceBuffer out) {
    long words = own.size() / WORD;
    long blocks = (words + SUM_THREADS - 1) / SUM_THREADS;
    int most = SUM_BLOCKS_PER_MULTIPROCESSOR * device.multiprocessors();
    stream.launch(
        add,
        (int) Math.min(blocks, most),
        SUM_THREADS,
        KernelArgs.of(received, own, out, words, topology.rank(), topology.nRanks()));
  }

  @Override
  public void close() {
    lifecycle.close();
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import io.fluxccl.InvalidUsage;
import io.fluxccl.collective.BoundCall;
import io.fluxccl.collective.Combine;
import io.fluxccl.collective.DeviceAllToAllV;
import io.fluxccl.collective.Dispatch;
import io.fluxccl.collective.ExpertBatch;
import io.fluxccl.collective.ExpertShape;
import io.fluxccl.collective.KernelStruct;
import io.fluxccl.collective.cuda.GpuAlgorithm.Trait;
import io.fluxccl.collective.cuda.PacketArea.Kind;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.cuda.CudaKernel;
import java.util.List;
import java.util.Set;
import java.util.function.BiConsumer;
import org.agrona.BitUtil;

/**
 * The algorithms whose kernels read sizes from the device, and their headers and slots of packets:
 * {@code routing.cuh}.
 */
final class Routes implements MappedGpuSet.Region {
  /** {@code sizeof(RouteArea)}. */
  private static final int AREA_LENGTH = 5 * Long.BYTES;

  private static final int COUNTED_LENGTH = AREA_LENGTH + 7 * Long.BYTES + 2 * Integer.BYTES;

  private static final int HEADER_BYTES = 8192;
  private static final int SETS = 2;
  private static final long FAILED_OFFSET = MappedPeers.AREAS_OFFSET;
  private static final long HEADERS_OFFSET = FAILED_OFFSET + 128;

  /** Memory of all slots, unless they get too small. */
  private static final long MOST_BYTES = 16 << 20;

  private static final long MOST_SLOT = 2 << 20;

  private static final long ROW = Kind.LL128.rowBytes(1);

  private final MappedGpuSet set;
  private final int nRanks;
  private final long slotBytes;
  private MappedPeers peers;

  /**
   * Lays out the region. A slot, for a pair of ranks, holds whole rows, so that each is aligned.
   */
  Routes(MappedGpuSet set) {
    this.set = set;
    this.nRanks = set.nRanks;
    this.slotBytes = Math.min(MOST_SLOT, MOST_BYTES / SETS / nRanks / ROW * ROW);
  }

  @Override
  public long length() {
    return slotsOffset() + SETS * nRanks * slotBytes;
  }

  private long slotsOffset() {
    return HEADERS_OFFSET + (long) SETS * nRanks * HEADER_BYTES;
  }

  @Override
  public List<GpuAlgorithm> bind(long[] states) {
    peers = set.peers(states);
    CudaKernel allToAll = set.kernel("routed_all_to_all");
    CudaKernel dispatch = set.kernel("routed_dispatch");
    CudaKernel combine = set.kernel("routed_combine");
    CudaKernel weighted = set.kernel("routed_combine_weighted");
    // Filled in for each call, by the one thread that enqueues.
    KernelStruct counted = new KernelStruct(COUNTED_LENGTH);
    ExpertTask dispatched = new ExpertTask(2 * Long.BYTES + 2 * Integer.BYTES);
    ExpertTask combined = new ExpertTask(Long.BYTES + 2 * Integer.BYTES);
    return List.of(
        algorithm(
            "routed-all-to-all",
            DeviceAllToAllV.class,
            (stream, call) -> allToAll(stream, call, allToAll, counted)),
        algorithm(
            "experts-dispatch",
            Dispatch.class,
            (stream, call) -> dispatch(stream, call, dispatch, dispatched)),
        algorithm(
            "experts-combine",
            Combine.class,
            (stream, call) -> {
              boolean ofRows = ((Combine) call.call()).rows() != null;
              combine(stream, call, ofRows ? weighted : combine, combined);
            }));
  }

  private static GpuAlgorithm algorithm(
      String name, Class<?> calls, BiConsumer<DeviceStream, BoundCall> launch) {
    return new GpuAlgorithm(
        name,
        Set.of(Trait.ROUTED, Trait.NVLINK),
        call -> calls.isInstance(call.call()),
        call -> Exchanges.LL128_LATENCY,
        launch);
  }

  /** Writes the {@code RouteArea} at the start of each kernel's struct. */
  private void putArea(KernelStruct target) {
    target
        .at(0)
        .putLong(FAILED_OFFSET)
        .putLong(HEADERS_OFFSET)
        .putLong(slotsOffset())
        .putLong(slotBytes)
        .putLong(set.faultAddress());
  }

  /** Returns how many rows of packets a slot holds. */
  private int slotRows() {
    return (int) (slotBytes / ROW);
  }

  /** An all-to-all-v with counts on the device: {@code routed_all_to_all.cuh}. */
  private void allToAll(
      DeviceStream stream, BoundCall bound, CudaKernel kernel, KernelStruct task) {
    DeviceAllToAllV call = (DeviceAllToAllV) bound.call();
    int size = call.type().size();
    long rows = Kind.LL128.rows(call.countBytes());
    int sliceRows = (int) Math.min(slotRows(), rows);
    putArea(task);
    task.putAddress(call.counts().send())
        .putAddress(call.counts().sendOffsets())
        .putAddress(call.counts().receiveOffsets())
        .putAddress(call.counts().received())
        .putLong(call.most())
        .putLong(call.inputBytes(bound.rank(), bound.nRanks()) / size)
        .putLong(call.outputBytes(bound.rank(), bound.nRanks()) / size)
        .putInt(size)
        .putInt(sliceRows);
    launch(stream, bound, kernel, task, (long) sliceRows * (nRanks - 1));
  }

  /** Tokens to the ranks of their experts: {@code dispatch.cuh}. */
  private void dispatch(DeviceStream stream, BoundCall bound, CudaKernel kernel, ExpertTask task) {
    Dispatch call = (Dispatch) bound.call();
    ExpertShape shape = call.batch().shape();
    int scales = BitUtil.align(shape.scaleBytes(), Long.BYTES);
    int bytes = shape.tokenBytes() + scales + 2 * shape.topK() * Integer.BYTES;
    task.bind(call.batch(), shape.tokenBytes(), bytes)
        .putAddress(call.scales())
        .putAddress(call.outputScales())
        .putInt(shape.scaleBytes());
    launch(stream, bound, kernel, task, sliceRows(shape, bytes) * (nRanks - 1));
  }

  /** Returns the sums of the experts' results to the tokens' ranks: {@code combine.cuh}. */
  private void combine(DeviceStream stream, BoundCall bound, CudaKernel kernel, ExpertTask task) {
    Combine call = (Combine) bound.call();
    ExpertShape shape = call.batch().shape();
    int bytes = shape.combinedBytes();
    task.bind(call.batch(), bytes, bytes).putAddress(call.rows()).putInt(call.inputRows());
    launch(stream, bound, kernel, task, sliceRows(shape, bytes));
  }

  /**
   * Enqueues a kernel.
   *
   * @param rows how many rows of packets it handles at most in one slice; combine handles a row of
   *     all ranks at once
   */
  private void launch(
      DeviceStream stream, BoundCall call, CudaKernel kernel, KernelStruct task, long rows) {
    GpuGrid grid = set.grid;
    int blocks = grid.blocksFor(rows, GpuGrid.FEW_WARPS);
    int warps = GpuGrid.warpsFor(rows, blocks);
    grid.launch(stream, kernel, blocks, warps, KernelArgs.of(peers.bind(call), task));
  }

  /** Returns the rows of packets of a token's message. */
  private static int rows(int bytes) {
    return (int) Kind.LL128.rows(bytes);
  }

  private int sliceTokens(int bytes) {
    return slotRows() / rows(bytes);
  }

  /** Returns the rows of packets of the largest slice, to one rank. */
  private long sliceRows(ExpertShape shape, int bytes) {
    return (long) Math.min(shape.tokens(), sliceTokens(bytes)) * rows(bytes);
  }

  /**
   * The arguments that the kernels of dispatch and combine share: the twin of {@code ExpertTask} in
   * {@code experts.cuh}.
   */
  private final class ExpertTask extends KernelStruct {
    /** {@code sizeof(ExpertTask)}. */
    private static final int LENGTH = AREA_LENGTH + 8 * Long.BYTES + 12 * Integer.BYTES;

    /** Creates the struct, followed by a number of bytes. */
    ExpertTask(int more) {
      super(LENGTH + more);
    }

    /** Writes a {@code Divisor}. */
    private ExpertTask putDivisor(int by) {
      putInt(by).putInt(Integer.divideUnsigned(-1, by) + 1);
      return this;
    }

    /**
     * Fills in a batch.
     *
     * @param valueBytes bytes of a token's values
     * @param bytes of a token's whole message
     * @return this; the next value is written after the struct
     */
    ExpertTask bind(ExpertBatch batch, int valueBytes, int bytes) {
      ExpertShape shape = batch.shape();
      putArea(this);
      putAddress(batch.ids())
          .putAddress(batch.weights())
          .putAddress(batch.receivedIds())
          .putAddress(batch.receivedWeights())
          .putAddress(batch.sources())
          .putAddress(batch.perRank())
          .putAddress(batch.perExpert())
          .putAddress(batch.plan())
          .putInt(shape.tokens())
          .putInt(shape.topK())
          .putInt(shape.experts())
          .putInt(shape.capacity())
          .putInt(valueBytes)
          .putInt(sliceTokens(bytes));
      return putDivisor(rows(bytes)).putDivisor(shape.experts() / nRanks).putDivisor(nRanks - 1);
    }
  }

  /** Errors that kernels find in values that they read from the device: {@code routing.cuh}. */
  enum Fault {
    NONE("none %d"),
    COUNT("all-to-all-v: send count=%d is not within 0 and the bound of the call"),
    RANGE("all-to-all-v: send offset=%d and its count lie outside of the input"),
    ROOM("all-to-all-v: it sends %d elements, for which the output of rank %d has no room"),
    EXPERT("dispatch: id=%d is neither an expert nor -1"),
    CAPACITY("dispatch: it would receive %d tokens, more than its capacity"),
    ROW("combine: row=%d is neither a row of the input nor -1");

    private static final int KIND_SHIFT = 56;
    private static final int RANK_SHIFT = 48;

    private final String text;

    Fault(String text) {
      this.text = text;
    }

    /**
     * Returns the error that a word of a kernel means, or null if it is 0.
     *
     * @param word written by {@code RouteArea::report}
     * @param rank this rank
     */
    static InvalidUsage decode(long word, int rank) {
      if (word == 0) {
        return null;
      }
      Fault kind = values()[(int) (word >>> KIND_SHIFT)];
      long value = word << Long.SIZE - RANK_SHIFT >> Long.SIZE - RANK_SHIFT;
      // A count may have any value; ids and rows are signed 32-bit values.
      boolean isInt = kind == EXPERT || kind == ROW;
      return InvalidUsage.of(
          "rank %d, " + kind.text + "; nothing was written beyond a buffer",
          word >>> RANK_SHIFT & 0xff,
          isInt ? (int) value : value,
          rank);
    }
  }
}

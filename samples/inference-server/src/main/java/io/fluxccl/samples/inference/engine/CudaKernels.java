// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.engine;

import static io.fluxccl.samples.inference.engine.ModelOptions.PAGE;

import io.fluxccl.DataType;
import io.fluxccl.collective.KernelStruct;
import io.fluxccl.collective.Pipeline;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceHandle;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.PinnedBuffer;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.device.cuda.CudaKernel;
import io.fluxccl.device.cuda.CudaModule;
import io.fluxccl.group.RankGroup;
import io.fluxccl.matmul.HostMatrix;
import io.fluxccl.matmul.PackedMatrix;
import io.fluxccl.matmul.PackedProducts;
import io.fluxccl.samples.inference.model.LlamaConfig;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.stream.Stream;

/**
 * Kernels on a GPU, compiled for this model's heads at the first start. Activations and weights are
 * of bfloat16, the residual stream and logits of 32 bits. A kernel is captured for a number of rows
 * and skips those that a step has not.
 */
final class CudaKernels implements Kernels {
  /** System property: {@code true} computes in 32 bits, to compare with other implementations. */
  static final String FLOAT_PROPERTY = "inference.float32";

  private static final int HOPPER = 90;
  private static final int MOST_THREADS = 1024;
  private static final int MOST_HIDDEN = 16 * MOST_THREADS;

  // Of attention.cu.
  private static final int WARPS_OF_BLOCK = 8;
  private static final int MOST_SHARED = 48 << 10;

  // Constants of hopper/attention.cu and hopper/sampling.cu.
  private static final int BLOCKS_OF_CLUSTER = 8;
  private static final int WARPS = 4;
  private static final int MOST_ROWS_FOR_CLUSTERS = 64;

  /** No {@code ProductParts}: the product is in its buffer. */
  private static final DeviceHandle NO_PARTS = new KernelStruct(24);

  private final LlamaConfig config;
  private final ModelOptions options;
  private final DataType type;
  private final CudaDevice device;
  private final PinnedBuffer step;
  private final CudaModule module;

  private final PackedProducts products;

  /** Whether attention is that for GPUs of compute capability 9.0. */
  private final boolean isHopper;

  /** Products that the next kernel adds up, by their buffer. */
  private final Map<DeviceBuffer, DeviceHandle> parts = new IdentityHashMap<>();

  private final List<DeviceBuffer> buffers = new ArrayList<>();

  private final int rank;
  private final int nRanks;
  private final LlamaConfig.Heads heads;
  private final int pagesOfSequence;

  /** The {@link StepRows} of this step, on the GPU. */
  private final DeviceBuffer rowsHere;

  private final DeviceBuffer frequencies;

  /** The numbers of each sequence's pages. */
  private final DeviceBuffer pages;

  /** Of this generation; null if kernels don't add what ranks have. */
  private PeerSums peers;

  // By layer: [page][kvHead][token][element].
  private final DeviceBuffer keys;
  private final DeviceBuffer values;

  /** Creates the kernels of one rank of {@code nRanks}, which read {@code step}'s StepRows. */
  CudaKernels(
      CudaDevice device,
      LlamaConfig config,
      ModelOptions options,
      int rank,
      int nRanks,
      PinnedBuffer step) {
    this.device = device;
    this.config = config;
    this.options = options;
    this.rank = rank;
    this.nRanks = nRanks;
    this.step = step;
    this.type = Boolean.getBoolean(FLOAT_PROPERTY) ? DataType.FLOAT32 : DataType.BFLOAT16;
    this.heads = config.headsOf(rank, nRanks);
    this.pagesOfSequence = (config.context() + PAGE - 1) / PAGE;
    if (config.hidden() % 4 != 0 || config.hidden() > MOST_HIDDEN) {
      throw new IllegalArgumentException(
          "hidden_size=" + config.hidden() + "; a multiple of 4 up to " + MOST_HIDDEN);
    }
    this.isHopper =
        device.computeCapability() == HOPPER
            && type == DataType.BFLOAT16
            && List.of(32, 64, 128).contains(config.headDim())
            && heads.group() <= 8
            && config.windows().stream().allMatch(window -> window == 0);
    requireHeads();
    this.module =
        CudaSource.compile(config.headDim(), heads.group(), type, isHopper).prepare(device);
    this.products =
        PackedProducts.of(
            device,
            type,
            options.maxRows(),
            config.hidden(),
            heads.count() * config.headDim(),
            config.intermediate() / nRanks);
    this.rowsHere = allocate(StepRows.memoryBytes(options.maxRows()));
    float[] numbers = config.rope().inverseFrequencies();
    this.frequencies = allocate((long) numbers.length * Float.BYTES);
    ByteBuffer bytes = ByteBuffer.allocate((int) frequencies.size()).order(ByteOrder.LITTLE_ENDIAN);
    bytes.asFloatBuffer().put(numbers);
    frequencies.upload(0, bytes);
    this.pages = allocate((long) options.maxSequences() * pagesOfSequence * Integer.BYTES);
    this.keys = allocate(config.layers() * cacheBytesOfLayer());
    this.values = allocate(config.layers() * cacheBytesOfLayer());
  }

  /** Refuses heads for which attention.cu has no lanes or no shared memory. */
  private void requireHeads() {
    int lanes = config.headDim() / (16 / type.size());
    int shared = WARPS_OF_BLOCK * heads.group() * (config.headDim() + 2) * Float.BYTES;
    if (lanes > 32
        || Integer.bitCount(lanes) != 1
        || lanes * 16 != config.headDim() * type.size()
        || (!isHopper && shared > MOST_SHARED)) {
      throw new IllegalArgumentException(
          String.format(
              Locale.ROOT,
              "head_dim=%d and %d heads of queries for one of keys; on a GPU head_dim must be a"
                  + " power of two from 8 to 256, and %d bytes of shared memory at most %d: try"
                  + " more ranks than heads of keys, or FLUXCCL_DEVICE=host",
              config.headDim(),
              heads.group(),
              shared,
              MOST_SHARED));
    }
  }

  private long cacheBytesOfLayer() {
    return type.bytes((long) options.pages() * PAGE * heads.kvCount() * config.headDim());
  }

  private DeviceBuffer allocate(long bytes) {
    DeviceBuffer buffer = device.allocate(bytes);
    buffers.add(buffer);
    return buffer;
  }

  @Override
  public DataType type() {
    return type;
  }

  @Override
  public int roomFor(int rows) {
    return products.roomFor(rows);
  }

  /** Weights that kernels read element by element: an embedding, or the gains of a norm. */
  private record Table(DeviceBuffer buffer) implements Weights {}

  /** Weights of a product. */
  private record Matrix(PackedMatrix packed, Use use) implements Weights {}

  @Override
  public Weights load(Use use, HostMatrix... stacked) {
    if (use != Use.READ) {
      return new Matrix(products.pack(resultOf(use), stacked), use);
    }
    int rows = Arrays.stream(stacked).mapToInt(HostMatrix::rows).sum();
    DeviceBuffer buffer = allocate(type.bytes((long) rows * stacked[0].cols()));
    HostMatrix.upload(buffer, type, stacked);
    return new Table(buffer);
  }

  private static PackedMatrix.Result resultOf(Use use) {
    return switch (use) {
      case LOGITS -> PackedMatrix.Result.FLOATS;
      case GATED -> PackedMatrix.Result.GATED;
      default -> PackedMatrix.Result.ELEMENTS;
    };
  }

  @Override
  public void join(RankGroup group) {
    closePeers();
    if (type == DataType.BFLOAT16 && PeerSums.areFor(group)) {
      peers = new PeerSums(group, options.maxRows(), config.hidden());
    }
  }

  private void closePeers() {
    if (peers != null) {
      peers.close();
      peers = null;
    }
  }

  @Override
  public boolean addsRanks(int rows) {
    return peers != null && rows <= peers.rows();
  }

  private static DeviceBuffer buffer(Weights weights) {
    return ((Table) weights).buffer();
  }

  /** Returns an argument of a kernel: a buffer, or a null pointer. */
  private static Object orNull(Weights weights) {
    return weights == null ? (Object) 0L : buffer(weights);
  }

  private Pipeline launch(Pipeline before, String kernel, int blocks, int threads, Object... args) {
    return launch(before, module.kernel(kernel), blocks, threads, args);
  }

  /** Adds a launch; the step's rows are the first argument of every kernel. */
  private Pipeline launch(
      Pipeline before, CudaKernel kernel, int blocks, int threads, Object... args) {
    Object[] all = Stream.concat(Stream.of(rowsHere), Stream.of(args)).toArray();
    return before.launch(kernel.overlapping(), blocks, threads, KernelArgs.of(all));
  }

  @Override
  public Pipeline embed(Pipeline before, int rows, Weights table, DeviceBuffer out) {
    // The first kernel of a step: from here on kernels read its rows from the GPU's memory.
    Pipeline copied = before.copy(rowsHere, 0, step, 0, StepRows.commandBytes(rows));
    return launch(
        copied, "embed", rows, 256, buffer(table), config.hidden(), out, pages, pagesOfSequence);
  }

  @Override
  public Pipeline addNorm(
      Pipeline before, int rows, DeviceBuffer x, Delta delta, Weights gain, DeviceBuffer out) {
    DeviceBuffer product = delta == null ? null : delta.product();
    boolean ofRanks = delta != null && delta.ofRanks();
    Stream<Object> args =
        Stream.of(
            x,
            partsOf(product),
            product == null ? 0L : product,
            orNull(delta == null ? null : delta.bias()),
            buffer(gain),
            config.epsilon(),
            config.hidden(),
            products.tileRows(),
            out);
    return launch(
        before,
        ofRanks ? "addNormOfAll" : "addNorm",
        rows,
        threadsOfNorm(),
        (ofRanks ? Stream.concat(args, Stream.of(peers.struct())) : args).toArray());
  }

  /** No more than have four elements each; the same for any number of rows, as its sums are. */
  private int threadsOfNorm() {
    int warps = (config.hidden() / 4 + 31) / 32;
    return Math.min(
        config.hidden() > MOST_HIDDEN / 2 ? MOST_THREADS : MOST_THREADS / 2, 32 * warps);
  }

  private DeviceHandle partsOf(DeviceBuffer product) {
    return parts.getOrDefault(product, NO_PARTS);
  }

  @Override
  public Pipeline multiply(
      Pipeline before, int rows, DeviceBuffer in, Weights weights, DeviceBuffer out) {
    PackedMatrix packed = ((Matrix) weights).packed();
    Use use = ((Matrix) weights).use();
    boolean reduced = use == Use.PARTIAL && nRanks > 1 && !addsRanks(rows);
    if (reduced || resultOf(use) != PackedMatrix.Result.ELEMENTS) {
      parts.remove(out);
      return before.enqueue("multiply", stream -> packed.enqueue(stream, rows, in, out));
    }
    parts.put(out, packed.parts());
    return before.enqueue("multiply", stream -> packed.enqueueParts(stream, rows, in, out));
  }

  @Override
  public Pipeline attend(
      Pipeline before, int rows, int layer, HeadWeights own, DeviceBuffer qkv, DeviceBuffer out) {
    int kvHeads = heads.kvCount();
    DeviceBuffer layerKeys = keys.slice(layer * cacheBytesOfLayer(), cacheBytesOfLayer());
    DeviceBuffer layerValues = values.slice(layer * cacheBytesOfLayer(), cacheBytesOfLayer());
    Pipeline stored =
        launch(
            before,
            "turnAndStore",
            rows * kvHeads,
            threadsOfTurn(),
            partsOf(qkv),
            qkv,
            orNull(own.bias()),
            orNull(own.queryGain()),
            orNull(own.keyGain()),
            config.epsilon(),
            frequencies,
            config.rope().scale(),
            kvHeads,
            layerKeys,
            layerValues);
    int blocks = blocksOfHead(rows * kvHeads);
    String name = isHopper ? "attend" + blocks : "attend";
    return launch(
        stored,
        module.kernel(name).withSharedMemory(isHopper ? sharedBytes() : 0),
        rows * kvHeads * blocks,
        isHopper ? WARPS * 32 : 256,
        qkv,
        layerKeys,
        layerValues,
        pages,
        pagesOfSequence,
        kvHeads,
        own.window(),
        products.tileRows(),
        out);
  }

  /** One for each pair of elements of the queries and key that it turns, and of the value. */
  private int threadsOfTurn() {
    int elements = (heads.group() + 3) * config.headDim() / 2;
    return Math.min(MOST_THREADS, (elements + 31) / 32 * 32);
  }

  /** Few heads of few rows get a cluster of blocks each: more of the GPU works for them. */
  private int blocksOfHead(int heads) {
    boolean isCluster = isHopper && 2 * heads <= device.multiprocessors();
    return isCluster ? BLOCKS_OF_CLUSTER : 1;
  }

  private int sharedBytes() {
    return WARPS * 2 * PAGE * config.headDim() * type.size();
  }

  @Override
  public Pipeline multiplyGated(
      Pipeline before,
      int rows,
      DeviceBuffer in,
      Weights weights,
      Weights bias,
      DeviceBuffer gateAndUp,
      DeviceBuffer out) {
    if (products.tileRows() > 0 && bias == null) {
      return multiply(before, rows, in, weights, out); // and gates
    }
    int width = config.intermediate() / nRanks;
    int blocks = (width + MOST_THREADS - 1) / MOST_THREADS;
    Pipeline multiplied = multiply(before, rows, in, weights, gateAndUp);
    return launch(
        multiplied,
        "gate",
        rows * blocks,
        256,
        partsOf(gateAndUp),
        gateAndUp,
        orNull(bias),
        width,
        blocks,
        products.tileRows(),
        out);
  }

  /** Returns a {@code Choice} of sampling.cu. */
  private KernelStruct struct(Choice choice) {
    int vocabulary = config.vocabulary() / nRanks;
    return new KernelStruct(56)
        .putLong(choice.logits().address())
        .putLong(choice.most().address())
        .putLong(choice.coarse().address())
        .putLong(choice.fine().address())
        .putLong(choice.limits().address())
        .putLong(choice.best().address())
        .putInt(vocabulary)
        .putInt(rank * vocabulary);
  }

  @Override
  public Pipeline most(Pipeline before, int rows, Choice choice) {
    return launch(before, "most", rows, MOST_THREADS, struct(choice));
  }

  @Override
  public Pipeline masses(Pipeline before, int rows, int level, Choice choice) {
    return launch(before, "masses", rows, MOST_THREADS, level, struct(choice));
  }

  @Override
  public Pipeline limit(Pipeline before, int rows, int level, Choice choice) {
    return launch(before, "limit", rows, Nucleus.BINS, level, struct(choice));
  }

  @Override
  public Pipeline best(Pipeline before, int rows, boolean nucleus, Choice choice) {
    boolean isCluster = isHopper && rows <= MOST_ROWS_FOR_CLUSTERS;
    int blocks = isCluster ? rows * BLOCKS_OF_CLUSTER : rows;
    int threads = isCluster ? MOST_THREADS / 2 : MOST_THREADS;
    String name = isCluster ? "bestByCluster" : "best";
    return launch(before, name, blocks, threads, struct(choice), nucleus ? 1 : 0);
  }

  @Override
  public Pipeline choose(Pipeline before, int rows, Choice choice) {
    long next = step.deviceAddress() + StepRows.nextOffset(options.maxRows(), 0);
    return launch(before, "choose", 1, 256, choice.best(), next);
  }

  @Override
  public void close() {
    closePeers();
    buffers.forEach(DeviceBuffer::close);
    products.close();
    module.close();
  }
}

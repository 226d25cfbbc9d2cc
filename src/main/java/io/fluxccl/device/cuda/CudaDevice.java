// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import io.fluxccl.InvalidUsage;
import io.fluxccl.JvmAccess;
import io.fluxccl.NativeLibrary;
import io.fluxccl.completion.CompletionAgent;
import io.fluxccl.concurrent.Closing;
import io.fluxccl.concurrent.Lifecycle;
import io.fluxccl.concurrent.UseCount;
import io.fluxccl.device.Arena;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceGraph;
import io.fluxccl.device.DeviceKind;
import io.fluxccl.device.DeviceStream;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.function.Consumer;
import jcuda.Pointer;
import jcuda.driver.CUresult;
import jcuda.driver.CUstream;
import jcuda.driver.JCudaDriver;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * A GPU. A process may have several objects for the same GPU, one for each rank on it. They share
 * only the GPU's primary context and its mappings. Any thread may use it; each call makes the
 * context current on its thread and leaves it current.
 *
 * <p>After {@link #close()}, buffers stay usable until they are closed, and the context is released
 * with the last of them.
 */
public final class CudaDevice implements Device {
  private static final Logger LOG = LoggerFactory.getLogger(CudaDevice.class);

  /** From this size on, a buffer has an allocation of its own. */
  static final long LARGE = 1L << 20;

  private static final long BLOCK_LENGTH = 2L << 20;
  private static final int PINNED_LARGE = 64 * 1024;
  private static final int PINNED_BLOCK_LENGTH = 2 << 20;

  private final PrimaryContext context;
  private final CudaDeviceOptions options;
  final GpuProperties properties;
  private final CompletionAgent agent;
  private final Arena<CudaMemory> arena;
  private final Arena<PinnedBlock> pinnedArena;

  /** All open streams, and closed streams whose work is not done yet. */
  private final List<LiveCudaStream> streams = new CopyOnWriteArrayList<>();

  /** The GPUs whose memory kernels may reach. The access ends with either context. */
  private final Map<Integer, PrimaryContext> peers = new ConcurrentHashMap<>();

  private final Lifecycle lifecycle;

  private CudaDevice(PrimaryContext context, CudaDeviceOptions options) {
    this.context = context;
    this.options = options;
    this.properties = GpuProperties.of(context);
    this.lifecycle = new Lifecycle("GPU " + context.ordinal);
    // The lifecycle closes these after the streams and graphs that are opened later.
    lifecycle.own(context::release);
    lifecycle.own(this::releasePeers);
    this.pinnedArena =
        new Arena<>(
            lifecycle,
            PINNED_BLOCK_LENGTH,
            () -> PinnedBlock.allocate(context, PINNED_BLOCK_LENGTH),
            block -> false);
    this.arena =
        new Arena<>(lifecycle, BLOCK_LENGTH, () -> allocateZeroed(BLOCK_LENGTH), block -> false);
    this.agent =
        lifecycle.own(new CompletionAgent("gpu" + context.ordinal, PrimaryContext::relaxCapture));
  }

  /** {@link #open(int, CudaDeviceOptions)} with the default options. */
  public static CudaDevice open(int index) {
    return open(index, CudaDeviceOptions.DEFAULT);
  }

  /**
   * Opens a GPU, and loads the built-in kernels.
   *
   * @param index its number among those that this process sees, from 0
   * @param options how it allocates
   * @return the device; the caller closes it
   * @throws InvalidUsage if there is no such GPU
   * @throws io.fluxccl.DeviceFailure if there is no driver, or it refuses
   */
  public static CudaDevice open(int index, CudaDeviceOptions options) {
    JvmAccess.requireUnsafe();
    CudaDriver.requireGpu(index); // before PrimaryContext, whose class needs JCuda
    PrimaryContext context = PrimaryContext.retain(index);
    CudaDevice device = Closing.onFailure(context::release, () -> new CudaDevice(context, options));
    Closing.onFailure(device::close, device::prepare);
    return device;
  }

  /**
   * Allocates before any kernel runs. Later, the driver could wait for running kernels while these
   * wait for this caller.
   */
  private void prepare() {
    CudaModule.builtIn().prepareIfPossible(this);
    context.copyStream.open();
    arena.open();
    pinnedArena.open();
  }

  @Override
  public DeviceKind kind() {
    return DeviceKind.CUDA;
  }

  /** Returns the driver's number of the GPU in this process. */
  @Override
  public int index() {
    return context.ordinal;
  }

  @Override
  public String description() {
    return properties.description() + ", " + pciBusId();
  }

  /**
   * Returns the PCI address of the GPU, as the operating system writes it: {@code 0000:3b:00.0}.
   */
  public String pciBusId() {
    return context.pciBusId;
  }

  /** Returns the NUMA node of the GPU, or -1 if there is none or it is not known. */
  public int numaNode() {
    return ThreadPlacement.numaNode(ThreadPlacement.SYS, context.pciBusId);
  }

  /** Returns how many multiprocessors it has. */
  public int multiprocessors() {
    return properties.multiprocessors();
  }

  /** Ten times the major plus the minor number: 90 for an H200. */
  public int computeCapability() {
    return properties.computeCapability();
  }

  @Override
  public boolean exportsDmaBufs() {
    return NativeLibrary.isAvailable() && properties.exportsDmaBufs();
  }

  @Override
  public boolean ordersRemoteWrites() {
    return properties.ordersRemoteWrites();
  }

  /** Makes the GPU's context current on the calling thread: for callers of the driver. */
  public void makeCurrent() {
    context.makeCurrent();
  }

  /**
   * Makes the GPU's context current on the calling thread and, if possible, binds the thread to the
   * processors near the GPU. For threads that serve only this GPU.
   */
  @Override
  public void bindThread() {
    PrimaryContext.relaxCapture();
    context.makeCurrent();
    ThreadPlacement.bindTo(ThreadPlacement.processors(ThreadPlacement.SYS, numaNode()))
        .ifPresent(why -> LOG.debug("{} stays where it is: {}", Thread.currentThread(), why));
  }

  /**
   * {@inheritDoc}
   *
   * <p>Aligned to 128 bytes. Buffers below 1 MiB share an allocation of 2 MiB. Larger buffers have
   * an allocation of their own, in whole multiples of 2 MiB. Waits for no stream, unless the GPU
   * has no memory left: then for up to 5 s for kernels, after which closed buffers are freed.
   */
  @Override
  public CudaBuffer allocate(long size) {
    lifecycle.checkOpen();
    if (size < 1) {
      throw new InvalidUsage("size=" + size + "; give 1 or more");
    }
    if (size >= LARGE) {
      return new CudaBuffer(this, allocateZeroed(size), 0, size);
    }
    Arena.Piece<CudaMemory> piece = arena.allocate(size);
    return new CudaBuffer(this, piece.block(), piece.offset(), size);
  }

  /**
   * Returns memory of this GPU that other code allocated ({@code cudaMalloc}, {@code
   * cuMemAllocAsync}, {@code cuMemMap}) as a buffer, which frees nothing. Keep it allocated until
   * the buffer and its registrations on all ranks are closed and the work that uses it is done.
   *
   * @param address of its first byte, anywhere in an allocation
   * @param bytes 1 or more, within the allocation; of VMM memory within adjacent ones
   * @return the buffer; the caller closes it. {@link CudaBuffer#unshareableReason} returns the
   *     reason if peers cannot map it
   * @throws InvalidUsage if that is not memory of this GPU's primary context, or goes beyond it
   */
  public CudaBuffer wrap(long address, long bytes) {
    lifecycle.checkOpen();
    return ForeignMemory.wrap(this, address, bytes);
  }

  /** {@link #wrap(long, long)} of what a pointer of JCuda's points to, such as a CUdeviceptr. */
  public CudaBuffer wrap(Pointer pointer, long bytes) {
    return wrap(CudaPointer.addressOf(pointer), bytes);
  }

  private CudaMemory allocateZeroed(long size) {
    CudaMemory allocation = CudaMemory.allocate(this, options.memory(), size);
    Closing.onFailure(
        allocation::release,
        () -> context.copyStream.zero(allocation.address(), allocation.size()));
    return allocation;
  }

  /**
   * {@inheritDoc}
   *
   * <p>All GPUs of this process can reach it. Aligned to 128 bytes; pieces smaller than 64 KiB
   * share a block.
   */
  @Override
  public CudaPinnedBuffer allocatePinned(int size) {
    lifecycle.checkOpen();
    if (size < 1) {
      throw new InvalidUsage("size=" + size + "; give 1 or more");
    }
    return size >= PINNED_LARGE
        ? new CudaPinnedBuffer(this, PinnedBlock.allocate(context, size), 0, size)
        : pinnedPiece(size);
  }

  CudaPinnedBuffer pinnedPiece(int size) {
    Arena.Piece<PinnedBlock> piece = pinnedArena.allocate(size);
    return new CudaPinnedBuffer(this, piece.block(), piece.offset(), size);
  }

  @Override
  public CudaStream createStream(String name) {
    return newStream("gpu" + index() + "-" + name, false);
  }

  /**
   * {@inheritDoc}
   *
   * <p>The stream has the highest priority. Enqueue only work that waits for no kernel: copies and
   * stores.
   */
  @Override
  public CudaStream createPreferredStream(String name) {
    return newStream("gpu" + index() + "-" + name, true);
  }

  /**
   * Returns a stream of another owner, to enqueue on; never destroyed, waited for or queried. Its
   * owner may capture it ({@link DeviceStream#isCapturing}). One thread at a time enqueues, the
   * owner's included. Keep it until this one is closed.
   *
   * @param handle the driver's {@code CUstream}, or the runtime's, as a number
   * @return the stream; the caller closes it, or it is closed with the device
   * @throws InvalidUsage if it is a default stream, or of another context than the primary one
   */
  public CudaStream wrapStream(long handle) {
    lifecycle.checkOpen();
    return add(WrappedStream.of(this, handle, agent));
  }

  /** {@link #wrapStream(long)} of one of JCuda's handles. */
  public CudaStream wrap(CUstream stream) {
    return wrapStream(CudaPointer.handleOf(stream));
  }

  LiveCudaStream newBranch(String fullName, WrappedStream of) {
    lifecycle.checkOpen();
    return of == null ? newStream(fullName, false) : add(WrappedStream.branch(of, fullName, agent));
  }

  private LiveCudaStream newStream(String fullName, boolean preferred) {
    lifecycle.checkOpen();
    return add(LiveCudaStream.create(this, fullName, preferred, agent));
  }

  private LiveCudaStream add(LiveCudaStream stream) {
    streams.add(stream);
    return lifecycle.own(stream);
  }

  /**
   * {@inheritDoc}
   *
   * <p>Also records the driver calls of {@code work} on a recording stream's {@link
   * CudaStream#handle()}, if the driver captures them. Waits for no work.
   */
  @Override
  public DeviceGraph record(String name, Consumer<? super DeviceStream> work) {
    lifecycle.checkOpen();
    return lifecycle.own(CudaGraph.record(this, name, work));
  }

  @Override
  public void whenEnqueuedWorkIsDone(Runnable action) {
    UseCount busyStreams = new UseCount(action);
    for (LiveCudaStream stream : streams) {
      busyStreams.retain();
      if (!stream.runAfterEnqueuedWork(busyStreams::release)) {
        busyStreams.release();
      }
    }
    busyStreams.release();
  }

  /**
   * Maps memory whose name another process of this host sent, for kernels of this device. Maps each
   * allocation once and shares the mapping between callers. Memory of this process is looked up and
   * not mapped.
   *
   * @param name the name that the owner sent
   * @return the mapping, with one more user
   * @throws InvalidUsage if it is on a GPU that this one can't reach
   * @throws io.fluxccl.DeviceFailure if the owner has ended, or the driver refuses
   */
  public CudaMapping map(CudaMemoryName name) {
    lifecycle.checkOpen();
    return CudaMapping.acquire(name, this);
  }

  /**
   * Returns whether kernels of this GPU can reach another one's memory.
   *
   * @param otherIndex number of a GPU of this process
   * @return the driver's answer; true for the same GPU
   */
  public boolean canAccessPeer(int otherIndex) {
    return CudaDriver.canReach(index(), otherIndex);
  }

  /**
   * Lets kernels of this GPU reach the memory that this process allocates on another one.
   * Idempotent; holds until this device is closed.
   *
   * @param otherIndex number of a GPU of this process
   * @throws InvalidUsage if this GPU can't reach that one
   */
  public void enablePeerAccess(int otherIndex) {
    synchronized (peers) {
      if (lifecycle.isClosed() || reaches(otherIndex)) {
        return;
      }
      PrimaryContext peer = PrimaryContext.retain(otherIndex);
      Closing.onFailure(peer::release, () -> enableAccess(peer));
      peers.put(otherIndex, peer);
    }
  }

  private void enableAccess(PrimaryContext peer) {
    if (!canAccessPeer(peer.ordinal)) {
      throw unreachable(peer.ordinal, peer.pciBusId);
    }
    context.makeCurrent();
    int result = JCudaDriver.cuCtxEnablePeerAccess(peer.handle, 0);
    if (result != CUresult.CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) {
      context.check(result, "cuCtxEnablePeerAccess(" + peer + ")");
    }
  }

  private void releasePeers() {
    synchronized (peers) {
      peers.values().forEach(PrimaryContext::release);
      peers.clear();
    }
  }

  /** Returns whether kernels of this GPU can use addresses of another GPU's plain memory. */
  boolean reaches(int otherIndex) {
    return otherIndex == index() || peers.containsKey(otherIndex);
  }

  /**
   * Refuses memory of a GPU that this one can't reach. Accepts a GPU that this process does not
   * see, because it may be reachable; the driver decides later.
   *
   * @param otherPciBusId which GPU, as {@link #pciBusId()} writes it; may be this one
   * @throws InvalidUsage if there is no peer access between them
   */
  public void requireReachable(String otherPciBusId) {
    for (int other = 0; other < CudaDriver.count(); other++) {
      if (CudaDriver.pciBusId(other).equals(otherPciBusId) && !canAccessPeer(other)) {
        throw unreachable(other, otherPciBusId);
      }
    }
  }

  private InvalidUsage unreachable(int other, String otherPciBusId) {
    return InvalidUsage.of(
        "%s can't reach memory of GPU %s (%s): no peer access between them"
            + " (nvidia-smi topo -p2p r); use ETHERNET",
        context, other, otherPciBusId);
  }

  PrimaryContext context() {
    return context;
  }

  /** Removes a closed stream or graph from the device's lists. */
  void remove(AutoCloseable closed) {
    streams.remove(closed);
    lifecycle.disown(closed);
  }

  @Override
  public void close() {
    lifecycle.close();
  }

  @Override
  public String toString() {
    return "CudaDevice(index=" + index() + ", " + pciBusId() + ")";
  }
}

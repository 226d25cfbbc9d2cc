// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import io.fluxccl.NativeLibrary;
import io.fluxccl.Text;
import io.fluxccl.concurrent.Closing;
import io.fluxccl.concurrent.UseCount;
import io.fluxccl.device.DmaBuf;
import java.lang.invoke.VarHandle;
import java.security.SecureRandom;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import java.util.function.IntSupplier;
import java.util.stream.IntStream;
import jcuda.driver.CUipcMemHandle;
import jcuda.driver.CUresult;
import jcuda.driver.JCudaDriver;

/**
 * One allocation of GPU memory that this process made. Buffers are parts of it. Plain memory is
 * shared by the driver's IPC handles. VMM memory is shared by file descriptors, which other
 * processes receive from the {@link DescriptorServer}; all GPUs of this process that can reach it
 * may read and write it.
 *
 * <p>Counts its users. It starts with one user. After the last user has released it, a thread of
 * the library frees it, because the driver may wait for running kernels. If kernels may still use
 * it, release it through {@link CudaDevice#whenEnqueuedWorkIsDone}. Thread-safe.
 */
public class CudaMemory extends UseCount {
  /** The size of the GPU's pages. An IPC handle opens each page that contains the memory. */
  private static final long GRANULARITY = 2L << 20;

  /** JCuda has no accessor for an IPC handle's bytes. */
  static final VarHandle HANDLE_BYTES =
      CudaPointer.field(CUipcMemHandle.class, "reserved", byte[].class);

  private static final Duration UNTIL_FREED = Duration.ofSeconds(5);

  /**
   * Longer than a device's thread takes to release what was closed, once the kernels have ended.
   */
  private static final Duration BETWEEN_TRIES = Duration.ofMillis(50);

  private static final long PROCESS = new SecureRandom().nextLong();
  private static final AtomicLong NUMBERS = new AtomicLong();
  private static final ConcurrentHashMap<Id, CudaMemory> OWNED = new ConcurrentHashMap<>();

  final CudaDevice device;
  final PrimaryContext context;
  private final Id id = new Id(PROCESS, NUMBERS.incrementAndGet());
  private final long address;
  private final long size;

  // All guarded by this.
  private CudaMemoryName name;

  /** The driver's handles of VMM memory: one for each of its pieces, which have one size. */
  final List<Long> handles = new ArrayList<>();

  /** Descriptors that other processes can ask for. */
  final List<DescriptorServer.Offer> offers = new ArrayList<>();

  /**
   * Identifies an allocation. Unlike an address it is never reused, and it gives no access to the
   * memory.
   *
   * @param process a random number of the process
   * @param number counts the allocations of that process
   */
  public record Id(long process, long number) {
    /** Returns whether it is an allocation of this process. */
    boolean isOfThisProcess() {
      return process == PROCESS;
    }
  }

  /**
   * Takes over memory, with one user.
   *
   * @param device that allocated it
   * @param address of its first byte on the device
   * @param size bytes
   */
  CudaMemory(CudaDevice device, long address, long size) {
    this.device = device;
    this.context = device.context();
    this.address = address;
    this.size = size;
    context.retain();
    OWNED.put(id, this);
  }

  /** Returns memory with one user; not zeroed. The size is rounded up to whole pages. */
  static CudaMemory allocate(CudaDevice device, CudaMemoryKind kind, long size) {
    PrimaryContext context = device.context();
    context.makeCurrent();
    if (kind != CudaMemoryKind.PLAIN) {
      return allocateVmm(device, size);
    }
    long rounded = size + GRANULARITY - 1 & -GRANULARITY;
    CudaPointer pointer = new CudaPointer();
    allocate(
        context, () -> JCudaDriver.cuMemAlloc(pointer, rounded), "cuMemAlloc(" + rounded + ")");
    return new CudaMemory(device, CudaPointer.valueOf(pointer), rounded);
  }

  private static CudaMemory allocateVmm(CudaDevice device, long size) {
    NativeLibrary.require("VMM memory");
    PrimaryContext context = device.context();
    long[] result = new long[1];
    context.check(VmmCalls.granularity(context.ordinal, result), "cuMemGetAllocationGranularity");
    long granularity = Math.max(result[0], GRANULARITY);
    long rounded = (size + granularity - 1) / granularity * granularity;
    allocate(
        context,
        () -> VmmCalls.create(context.ordinal, rounded, result),
        "cuMemCreate(" + rounded + ")");
    List<Long> handles = List.of(result[0]);
    int[] devices =
        IntStream.range(0, CudaDriver.count())
            .filter(other -> CudaDriver.canReach(other, device.index()))
            .toArray();
    long address =
        Closing.onFailure(
            () -> VmmCalls.release(handles.get(0)),
            () -> CudaMapping.mapPieces(context, handles, rounded, devices));
    CudaMemory memory = new CudaMemory(device, address, rounded);
    memory.handles.addAll(handles);
    return memory;
  }

  /**
   * Allocates. If the GPU has no memory left, tries again for up to {@link #UNTIL_FREED} while
   * kernels run: what was closed during a kernel is freed after it.
   *
   * @param call calls the driver and returns its result
   * @param description of the call, for the failure
   */
  private static void allocate(PrimaryContext context, IntSupplier call, String description) {
    long end = System.nanoTime() + UNTIL_FREED.toNanos();
    boolean isBusy = true;
    int result = call.getAsInt();
    while (result == CUresult.CUDA_ERROR_OUT_OF_MEMORY && isBusy) {
      isBusy = !LaunchGate.PROCESS.isQuiet() && System.nanoTime() - end < 0;
      LockSupport.parkNanos(BETWEEN_TRIES.toNanos());
      isBusy &= context.deferredFree.await(Duration.ofNanos(end - System.nanoTime()));
      context.makeCurrent(); // isQuiet may have changed it
      result = call.getAsInt();
    }
    context.check(result, description);
  }

  /**
   * Returns the allocation of this process that has the given name, with one more user.
   *
   * @param name what a peer sent
   * @return the allocation, or empty if this process has none of that name any more
   */
  public static Optional<CudaMemory> retainOwned(CudaMemoryName name) {
    return Optional.ofNullable(OWNED.get(name.id())).filter(UseCount::tryRetain);
  }

  /** Returns the allocations of this process, on all GPUs, that have users now. */
  public static List<CudaMemory> owned() {
    return List.copyOf(OWNED.values());
  }

  /** Returns the identity of this allocation. */
  public final Id id() {
    return id;
  }

  /** Returns the address of its first byte, the same on every GPU of this process. */
  public final long address() {
    return address;
  }

  /** Returns its length in bytes. */
  public final long size() {
    return size;
  }

  /**
   * Returns the name by which other processes map it. The caller is a user.
   *
   * @throws io.fluxccl.DeviceFailure if the driver can't share it
   */
  public final synchronized CudaMemoryName name() {
    if (name == null) {
      context.makeCurrent();
      name = share();
    }
    return name;
  }

  /**
   * Exports all of it for other devices. The caller is a user.
   *
   * @param offset the offset of the caller's part, in bytes
   */
  final Optional<DmaBuf> exportDmaBuf(long offset) {
    if (!device.exportsDmaBufs()) {
      return Optional.empty();
    }
    context.makeCurrent();
    int[] descriptor = new int[1];
    context.check(
        VmmCalls.exportDmaBuf(address, size, descriptor),
        "cuMemGetHandleForAddressRange(DMA_BUF_FD, " + size + ")");
    return Optional.of(new DmaBuf(descriptor[0], offset, DescriptorCalls::close));
  }

  /**
   * Makes it mappable by other processes. Called once, with this object's lock held and the context
   * current.
   */
  CudaMemoryName share() {
    return handles.isEmpty() ? sharePlain() : shareVmm();
  }

  /** Shares memory by {@code cuMemAlloc}. */
  final CudaMemoryName sharePlain() {
    CUipcMemHandle handle = new CUipcMemHandle();
    context.check(
        JCudaDriver.cuIpcGetMemHandle(handle, new CudaPointer(address)), "cuIpcGetMemHandle");
    byte[] bytes = (byte[]) HANDLE_BYTES.get(handle);
    return name(CudaMemoryKind.PLAIN, "", bytes, 1);
  }

  /** Shares VMM memory: offers a descriptor of each piece. */
  final CudaMemoryName shareVmm() {
    for (long handle : handles) {
      int[] descriptor = new int[1];
      checkShared(
          VmmCalls.exportDescriptor(handle, descriptor),
          "cuMemExportToShareableHandle, for which cuMemCreate must have been given POSIX file"
              + " descriptors as requestedHandleTypes,");
      offer(descriptor[0]);
    }
    return nameOfOffers(CudaMemoryKind.VMM, offers.get(0).token());
  }

  /** Offers a descriptor to peers, under a token that they derive from the token of the first. */
  final void offer(int descriptor) {
    DescriptorServer server = DescriptorServer.PROCESS;
    offers.add(
        offers.isEmpty()
            ? server.offer(descriptor)
            : server.offer(
                descriptor, DescriptorServer.tokenOf(offers.get(0).token(), offers.size())));
  }

  /** Returns the name of memory whose offers are made. */
  final CudaMemoryName nameOfOffers(CudaMemoryKind kind, byte[] secret) {
    return name(kind, offers.get(0).socketName(), secret, offers.size());
  }

  private CudaMemoryName name(CudaMemoryKind kind, String socket, byte[] secret, int pieces) {
    return new CudaMemoryName(kind, id, size, context.pciBusId, socket, secret, pieces);
  }

  /** Throws unless a call that shares the memory succeeded. */
  void checkShared(int result, String call) {
    context.check(result, call);
  }

  /** Returns why other processes can't map it, or empty. The caller is a user. */
  Optional<String> unshareableReason() {
    return Optional.empty();
  }

  /**
   * Lets kernels of any GPU of this process use it.
   *
   * @param other a device of that GPU
   * @return the mapping, to which the caller's use passes
   * @throws io.fluxccl.InvalidUsage if that GPU can't reach this one
   */
  CudaMapping mapFor(CudaDevice other, CudaMemoryName asName) {
    other.enablePeerAccess(context.ordinal);
    return new CudaMapping(other.context(), asName, address, this::release);
  }

  /** Returns whether there is anything for {@link #free} to do, once no user is left. */
  boolean hasToFree() {
    return true;
  }

  /** Frees the memory. Called once, on the deferred-free thread, with the context current. */
  synchronized void free() {
    offers.forEach(DescriptorServer.Offer::close); // their descriptors would keep the memory
    if (handles.isEmpty()) {
      context.check(JCudaDriver.cuMemFree(new CudaPointer(address)), "cuMemFree");
      return;
    }
    try {
      CudaMapping.unmapPieces(context, address, size, handles.size());
    } finally {
      context.check(VmmCalls.release(handles.get(0)), "cuMemRelease");
    }
  }

  @Override
  protected final void lastUserLeft() {
    OWNED.remove(id);
    if (hasToFree()) {
      context.freeLater(this::free);
    } else {
      context.release();
    }
  }

  @Override
  public String toString() {
    return Text.of(
        "%s(%s bytes at 0x%s of GPU %s)",
        getClass().getSimpleName(), size, Long.toHexString(address), context.ordinal);
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import io.fluxccl.Text;
import io.fluxccl.concurrent.UseCount;
import io.fluxccl.device.DmaBuf;
import java.security.SecureRandom;
import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.IntSupplier;
import jcuda.driver.CUresult;

/**
 * One allocation of GPU memory that this process made. Buffers are parts of it.
 *
 * <p>Counts its users. It starts with one user. After the last user has released it, a thread of
 * the library frees it, because the driver may wait for running kernels. If kernels may still use
 * it, release it through {@link CudaDevice#whenEnqueuedWorkIsDone}. Thread-safe.
 */
public abstract class CudaAllocation extends UseCount {
  private static final Duration UNTIL_FREED = Duration.ofSeconds(1);
  private static final long PROCESS = new SecureRandom().nextLong();
  private static final AtomicLong NUMBERS = new AtomicLong();
  private static final ConcurrentHashMap<Id, CudaAllocation> OWNED = new ConcurrentHashMap<>();

  private final Id id = new Id(PROCESS, NUMBERS.incrementAndGet());
  private final CudaDevice device;
  private final PrimaryContext context;
  private final long address;
  private final long size;
  private CudaMemoryName name; // guarded by this

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

  /** Allocates memory of a device, as that kind. */
  static CudaAllocation allocate(CudaDevice device, CudaMemoryKind kind, long size) {
    return kind == CudaMemoryKind.PLAIN
        ? PlainAllocation.allocate(device, size)
        : VmmAllocation.allocate(device, size);
  }

  /**
   * Takes over memory, with one user.
   *
   * @param device that allocated it
   * @param address of its first byte on the device
   * @param size bytes
   */
  CudaAllocation(CudaDevice device, long address, long size) {
    this.device = device;
    this.context = device.context();
    this.address = address;
    this.size = size;
    context.retain();
    OWNED.put(id, this);
  }

  /**
   * Returns the allocation of this process that has the given name, with one more user.
   *
   * @param name what a peer sent
   * @return the allocation, or empty if this process has none of that name any more
   */
  public static Optional<CudaAllocation> retainOwned(CudaMemoryName name) {
    CudaAllocation allocation = OWNED.get(name.id());
    return allocation != null && allocation.tryRetain()
        ? Optional.of(allocation)
        : Optional.empty();
  }

  /** Returns the allocations of this process, on all GPUs, that have users now. */
  public static List<CudaAllocation> owned() {
    return List.copyOf(OWNED.values());
  }

  /** Returns the identity of this allocation. */
  public Id id() {
    return id;
  }

  /** Returns the address of its first byte, the same on every GPU of this process. */
  public long address() {
    return address;
  }

  /** Returns its length in bytes. */
  public long size() {
    return size;
  }

  /** Returns the device that allocated it. */
  public CudaDevice device() {
    return device;
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
  abstract CudaMemoryName share();

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

  /**
   * Allocates. If the GPU has no memory left, waits until the deferred-free thread has freed the
   * memory released earlier, and tries once more.
   *
   * @param call calls the driver and returns its result
   * @param description of the call, for the failure
   */
  static void allocate(PrimaryContext context, IntSupplier call, String description) {
    int result = call.getAsInt();
    if (result == CUresult.CUDA_ERROR_OUT_OF_MEMORY && context.deferredFree.await(UNTIL_FREED)) {
      result = call.getAsInt();
    }
    context.check(result, description);
  }

  /** Returns whether there is anything for {@link #free} to do, once no user is left. */
  boolean hasToFree() {
    return true;
  }

  /** Frees the memory. Called once, on the deferred-free thread, with the context current. */
  abstract void free();

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

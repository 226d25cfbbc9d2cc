// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import io.fluxccl.Deadline;
import io.fluxccl.DeviceFailure;
import io.fluxccl.InvalidUsage;
import io.fluxccl.NativeLibrary;
import io.fluxccl.Text;
import io.fluxccl.concurrent.UseCount;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import jcuda.driver.CUipcMemHandle;
import jcuda.driver.CUipcMem_flags;
import jcuda.driver.CUresult;
import jcuda.driver.JCudaDriver;

/**
 * A mapping of GPU memory for kernels of one device of this process. The memory belongs to this
 * process or to another one. The mapping covers the whole allocation, even if only a part is used.
 * A GPU has one mapping per allocation, which all users of its parts share.
 *
 * <p>Counts its users. It starts with one user. After the last user has released it, a thread of
 * the library unmaps it. If kernels may still use it, release it through {@link
 * CudaDevice#whenEnqueuedWorkIsDone}. Thread-safe.
 */
public final class CudaMapping extends UseCount {
  /** The owner answers without its GPU, but a suspended process does not answer at all. */
  private static final Duration ANSWER_TIMEOUT = Duration.ofSeconds(5);

  private final PrimaryContext context;
  private final CudaMemoryName name;
  private final long address;
  private final Runnable unmap;

  /**
   * Creates a mapping with one user.
   *
   * @param context the context whose kernels use it
   * @param name the mapped memory
   * @param address of its first byte
   * @param unmap called once, on the deferred-free thread, with the context current
   */
  CudaMapping(PrimaryContext context, CudaMemoryName name, long address, Runnable unmap) {
    this.context = context;
    this.name = name;
    this.address = address;
    this.unmap = unmap;
    context.retain();
  }

  /**
   * Returns the mapping with one more user; implements {@link CudaDevice#map}. Only threads that
   * map the same allocation wait for each other.
   */
  static CudaMapping acquire(CudaMemoryName name, CudaDevice device) {
    ConcurrentHashMap<CudaMemory.Id, CompletableFuture<CudaMapping>> open =
        device.context().mappings;
    CompletableFuture<CudaMapping> own = new CompletableFuture<>();
    CompletableFuture<CudaMapping> before = open.putIfAbsent(name.id(), own);
    while (before != null) {
      CudaMapping mapped = before.join();
      if (mapped != null && !mapped.name.equals(name)) {
        throw new InvalidUsage(name + " differs from " + mapped.name + ", mapped before");
      }
      if (mapped != null && mapped.tryRetain()) {
        return mapped;
      }
      open.remove(name.id(), before);
      before = open.putIfAbsent(name.id(), own);
    }
    // Not within an operation of the map, whose locks must be short: the owner may take seconds to
    // answer.
    CudaMapping mapped = null;
    try {
      mapped = map(name, device);
      return mapped;
    } finally {
      if (mapped == null) {
        open.remove(name.id(), own);
      }
      own.complete(mapped);
    }
  }

  private static CudaMapping map(CudaMemoryName name, CudaDevice device) {
    if (name.id().isOfThisProcess()) {
      return mapOwned(name, device);
    }
    device.requireReachable(name.pciBusId());
    PrimaryContext context = device.context();
    return switch (name.kind()) {
      case PLAIN -> mapPlain(context, name);
      case VMM -> mapVmm(context, name);
      case POOL -> mapPool(context, name);
    };
  }

  /** Looks up this process's allocation, instead of trusting a peer to send an address. */
  private static CudaMapping mapOwned(CudaMemoryName name, CudaDevice device) {
    CudaMemory memory = CudaMemory.retainOwned(name).orElse(null);
    if (memory == null) {
      throw new DeviceFailure(
          0, "CLOSED", name + " was closed by this process; keep it open until its peers have it");
    }
    try {
      if (memory.size() != name.size()) {
        throw new InvalidUsage(name + " names " + memory);
      }
      return memory.mapFor(device, name);
    } catch (RuntimeException | Error e) {
      memory.release();
      throw e;
    }
  }

  private static CudaMapping mapPlain(PrimaryContext context, CudaMemoryName name) {
    context.makeCurrent();
    CudaPointer pointer = new CudaPointer();
    CUipcMemHandle handle = new CUipcMemHandle();
    CudaMemory.HANDLE_BYTES.set(handle, name.secret());
    context.check(
        JCudaDriver.cuIpcOpenMemHandle(
            pointer, handle, CUipcMem_flags.CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
        Text.of(
            "cuIpcOpenMemHandle(%s), whose owner must be alive, in the same IPC namespace (docker"
                + " --ipc=host) and on a GPU that this one reaches (nvidia-smi topo -p2p r),",
            name));
    return new CudaMapping(
            context,
            name,
            CudaPointer.valueOf(pointer),
            () -> context.check(JCudaDriver.cuIpcCloseMemHandle(pointer), "cuIpcCloseMemHandle"))
        .checked();
  }

  /**
   * Checks the size of the opened memory: the handle does not contain it, and the peer's value is
   * not trusted.
   */
  private CudaMapping checked() {
    CudaPointer start = new CudaPointer();
    long[] size = new long[1];
    try {
      context.check(
          JCudaDriver.cuMemGetAddressRange(start, size, new CudaPointer(address)),
          "cuMemGetAddressRange(" + name + ")");
      long there = CudaPointer.valueOf(start) + size[0] - address;
      if (name.size() > there) {
        throw new InvalidUsage(name + ", of which its handle opens " + there);
      }
      return this;
    } catch (RuntimeException | Error e) {
      release();
      throw e;
    }
  }

  private static CudaMapping mapVmm(PrimaryContext context, CudaMemoryName name) {
    NativeLibrary.require("mapping " + name);
    List<Long> handles = new ArrayList<>();
    try {
      for (int piece = 0; piece < name.pieces(); piece++) {
        int descriptor = requestDescriptor(name, piece);
        long[] handle = new long[1];
        try {
          context.makeCurrent();
          context.check(
              VmmCalls.importDescriptor(descriptor, handle),
              Text.of(
                  "cuMemImportFromShareableHandle(%s), whose GPU must be one that this process"
                      + " sees (CUDA_VISIBLE_DEVICES),",
                  name));
        } finally {
          DescriptorCalls.close(descriptor);
        }
        handles.add(handle[0]);
      }
      return ofPieces(context, name, handles, () -> {});
    } finally {
      handles.forEach(VmmCalls::release); // the mapping keeps the memory
    }
  }

  /** Requests the descriptor of a piece or a pool from the owner. The caller closes it. */
  private static int requestDescriptor(CudaMemoryName name, int piece) {
    byte[] first = Arrays.copyOf(name.secret(), DescriptorServer.TOKEN_LENGTH);
    byte[] token = DescriptorServer.tokenOf(first, piece);
    return DescriptorServer.request(name.socket(), token, Deadline.after(ANSWER_TIMEOUT));
  }

  /** Maps pieces of VMM memory for one GPU; {@code unmapped} runs once they are unmapped. */
  static CudaMapping ofPieces(
      PrimaryContext context, CudaMemoryName name, List<Long> handles, Runnable unmapped) {
    int count = handles.size();
    long address = mapPieces(context, handles, name.size(), new int[] {context.ordinal});
    return new CudaMapping(
        context,
        name,
        address,
        () -> {
          try {
            unmapPieces(context, address, name.size(), count);
          } finally {
            unmapped.run();
          }
        });
  }

  /**
   * Maps pieces of VMM memory at contiguous addresses. The memory exists while any process maps it,
   * also after its owner has ended.
   *
   * @param handles of pieces of equal size
   * @param size of all pieces together
   * @param devices that may read and write it
   * @return the address of the first
   * @throws DeviceFailure if the driver refuses; nothing stays mapped
   */
  static long mapPieces(PrimaryContext context, List<Long> handles, long size, int[] devices) {
    long[] address = new long[1];
    context.check(VmmCalls.reserve(size, 0, address), "cuMemAddressReserve(" + size + ")");
    long piece = size / handles.size();
    int mapped = 0;
    try {
      for (long handle : handles) {
        long at = address[0] + mapped * piece;
        context.check(VmmCalls.map(at, piece, handle), "cuMemMap(" + piece + ")");
        mapped++;
        context.check(
            VmmCalls.setAccess(at, piece, devices),
            "cuMemSetAccess(" + piece + ", for GPUs " + Arrays.toString(devices) + ")");
      }
      return address[0];
    } catch (RuntimeException | Error e) {
      for (int i = 0; i < mapped; i++) {
        VmmCalls.unmap(address[0] + i * piece, piece);
      }
      VmmCalls.free(address[0], size);
      throw e;
    }
  }

  /** Unmaps pieces of VMM memory and frees the addresses; the context is current. */
  static void unmapPieces(PrimaryContext context, long address, long size, int count) {
    long piece = size / count;
    int result = CUresult.CUDA_SUCCESS;
    for (int i = 0; i < count; i++) {
      int unmapped = VmmCalls.unmap(address + i * piece, piece);
      result = unmapped == CUresult.CUDA_SUCCESS ? result : unmapped;
    }
    int freed = VmmCalls.free(address, size);
    context.check(result, "cuMemUnmap(" + size + ")");
    context.check(freed, "cuMemAddressFree(" + size + ")");
  }

  private static CudaMapping mapPool(PrimaryContext context, CudaMemoryName name) {
    NativeLibrary.require("mapping " + name);
    long[] pool = new long[1];
    int descriptor = requestDescriptor(name, 0);
    try {
      context.makeCurrent();
      context.check(
          VmmCalls.importPool(descriptor, pool),
          "cuMemPoolImportFromShareableHandle(" + name + ")");
    } finally {
      DescriptorCalls.close(descriptor);
    }
    byte[] secret = name.secret();
    byte[] data = Arrays.copyOfRange(secret, CudaMemoryName.TOKEN_LENGTH, secret.length);
    long[] address = new long[1];
    try {
      if (!name.pciBusId().equals(context.pciBusId)) {
        context.check(VmmCalls.setPoolAccess(pool[0], context.ordinal), "cuMemPoolSetAccess");
      }
      context.check(
          VmmCalls.importPointer(pool[0], data, address), "cuMemPoolImportPointer(" + name + ")");
    } catch (RuntimeException | Error e) {
      VmmCalls.destroyPool(pool[0]);
      throw e;
    }
    return new CudaMapping(
            context,
            name,
            address[0],
            () -> {
              int freed = JCudaDriver.cuMemFree(new CudaPointer(address[0]));
              int destroyed = VmmCalls.destroyPool(pool[0]);
              context.check(freed, "cuMemFree of a peer's pool memory");
              context.check(destroyed, "cuMemPoolDestroy of a peer's pool");
            })
        .checked();
  }

  /** Returns the memory that is mapped. */
  public CudaMemoryName name() {
    return name;
  }

  /** Returns the address of its first byte for kernels of this device. */
  public long address() {
    return address;
  }

  /** Returns its length in bytes. */
  public long size() {
    return name.size();
  }

  /** Does not wait for threads that map, because callers must not block. */
  @Override
  protected void lastUserLeft() {
    CompletableFuture<CudaMapping> there = context.mappings.get(name.id());
    if (there != null && there.getNow(null) == this) {
      context.mappings.remove(name.id(), there);
    }
    context.freeLater(unmap);
  }

  @Override
  public String toString() {
    return "CudaMapping(" + name + " for GPU " + context.ordinal + ")";
  }
}

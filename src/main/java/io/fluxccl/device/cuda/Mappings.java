// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import io.fluxccl.DeviceFailure;
import io.fluxccl.InvalidUsage;
import io.fluxccl.NativeLibrary;
import io.fluxccl.Text;
import java.util.Arrays;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import jcuda.driver.CUipcMem_flags;
import jcuda.driver.CUresult;
import jcuda.driver.JCudaDriver;

/**
 * The mappings of a GPU: one per allocation, shared by all users of its parts. Thread-safe. Only
 * threads that map the same allocation wait for each other.
 */
final class Mappings {
  private final PrimaryContext context;

  /**
   * The mappings by allocation. The future of a mapping in progress completes soon, with null if it
   * fails.
   */
  final ConcurrentHashMap<CudaAllocation.Id, CompletableFuture<CudaMapping>> open =
      new ConcurrentHashMap<>();

  Mappings(PrimaryContext context) {
    this.context = context;
  }

  /** Returns the mapping with one more user; implements {@link CudaDevice#map}. */
  CudaMapping acquire(CudaMemoryName name, CudaDevice device) {
    CompletableFuture<CudaMapping> own = new CompletableFuture<>();
    CompletableFuture<CudaMapping> before = open.putIfAbsent(name.id(), own);
    while (before != null) {
      CudaMapping mapped = before.join();
      if (mapped != null && !mapped.name().equals(name)) {
        throw new InvalidUsage(name + " differs from " + mapped.name() + ", mapped before");
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

  /** Removes a mapping. Does not wait for threads that map, because callers must not block. */
  void remove(CudaMapping mapping) {
    CompletableFuture<CudaMapping> there = open.get(mapping.name().id());
    if (there != null && there.getNow(null) == mapping) {
      open.remove(mapping.name().id(), there);
    }
  }

  private CudaMapping map(CudaMemoryName name, CudaDevice device) {
    if (name.id().isOfThisProcess()) {
      return mapOwned(name, device);
    }
    device.requireReachable(name.pciBusId());
    return switch (name.kind()) {
      case PLAIN -> mapPlain(name);
      case VMM -> {
        VmmMapping mapped = VmmMapping.of(context, name);
        yield new CudaMapping(context, name, mapped.address(), mapped::unmap);
      }
      case POOL -> mapPool(name);
    };
  }

  /** Looks up this process's allocation, instead of trusting a peer to send an address. */
  private CudaMapping mapOwned(CudaMemoryName name, CudaDevice device) {
    CudaAllocation allocation =
        CudaAllocation.retainOwned(name)
            .orElseThrow(
                () ->
                    new DeviceFailure(
                        0,
                        "CLOSED",
                        name
                            + " was closed by this process; keep it open until its peers have it"));
    try {
      if (allocation.size() != name.size()) {
        throw new InvalidUsage(name + " names " + allocation);
      }
      return allocation.mapFor(device, name);
    } catch (RuntimeException | Error e) {
      allocation.release();
      throw e;
    }
  }

  private CudaMapping mapPlain(CudaMemoryName name) {
    context.makeCurrent();
    CudaPointer pointer = new CudaPointer();
    int result =
        JCudaDriver.cuIpcOpenMemHandle(
            pointer,
            PlainAllocation.handleOf(name.secret()),
            CUipcMem_flags.CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    if (result != CUresult.CUDA_SUCCESS) {
      throw CudaError.of(
          result,
          context.ordinal,
          Text.of(
              "cuIpcOpenMemHandle(%s), whose owner must be alive, in the same IPC namespace (docker"
                  + " --ipc=host) and on a GPU that this one reaches (nvidia-smi topo -p2p r),",
              name));
    }
    CudaMapping mapping =
        new CudaMapping(
            context,
            name,
            CudaPointer.valueOf(pointer),
            () -> context.check(JCudaDriver.cuIpcCloseMemHandle(pointer), "cuIpcCloseMemHandle"));
    return checked(mapping);
  }

  private CudaMapping checked(CudaMapping mapping) {
    try {
      requireBehind(mapping.address(), mapping.name());
      return mapping;
    } catch (RuntimeException | Error e) {
      mapping.release();
      throw e;
    }
  }

  /**
   * Checks the size of the opened memory: the handle does not contain it, and the peer's value is
   * not trusted.
   */
  private void requireBehind(long address, CudaMemoryName name) {
    CudaPointer start = new CudaPointer();
    long[] size = new long[1];
    context.check(
        JCudaDriver.cuMemGetAddressRange(start, size, new CudaPointer(address)),
        "cuMemGetAddressRange(" + name + ")");
    long there = CudaPointer.valueOf(start) + size[0] - address;
    if (name.size() > there) {
      throw new InvalidUsage(name + ", of which its handle opens " + there);
    }
  }

  private CudaMapping mapPool(CudaMemoryName name) {
    NativeLibrary.require("mapping " + name);
    long[] pool = new long[1];
    int descriptor = VmmMapping.requestDescriptor(name, 0);
    try {
      context.makeCurrent();
      context.check(
          PoolCalls.importPool(descriptor, pool),
          "cuMemPoolImportFromShareableHandle(" + name + ")");
    } finally {
      DescriptorCalls.close(descriptor);
    }
    byte[] secret = name.secret();
    byte[] data = Arrays.copyOfRange(secret, CudaMemoryName.TOKEN_LENGTH, secret.length);
    long[] address = new long[1];
    try {
      if (!name.pciBusId().equals(context.pciBusId)) {
        context.check(PoolCalls.setAccess(pool[0], context.ordinal), "cuMemPoolSetAccess");
      }
      context.check(
          PoolCalls.importPointer(pool[0], data, address), "cuMemPoolImportPointer(" + name + ")");
    } catch (RuntimeException | Error e) {
      PoolCalls.destroy(pool[0]);
      throw e;
    }
    return checked(new CudaMapping(context, name, address[0], () -> unmap(address[0], pool[0])));
  }

  private void unmap(long address, long pool) {
    int freed = JCudaDriver.cuMemFree(new CudaPointer(address));
    int destroyed = PoolCalls.destroy(pool);
    context.check(freed, "cuMemFree of a peer's pool memory");
    context.check(destroyed, "cuMemPoolDestroy of a peer's pool");
  }
}

package io.fluxccl.device.cuda;

import io.fluxccl.DeviceFailure;
import io.fluxccl.InvalidUsage;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import jcuda.driver.CUipcMem_flags;
import jcuda.driver.CUresult;
import jcuda.driver.JCudaDriver;

/**
 * What a GPU has mapped: each allocation once, for all that use a part of it. Thread-safe; only
 * threads that map the same allocation wait for each other.
 */
final class Mappings {
  private final PrimaryContext context;

  /** Of what is being mapped a future that ends soon, with null where that failed. */
  final ConcurrentHashMap<CudaAllocation.Id, CompletableFuture<CudaMapping>> open =
      new ConcurrentHashMap<>();

  Mappings(PrimaryContext context) {
    this.context = context;
  }

  /** Returns the mapping with one more user; {@link CudaDevice#map} says the rest. */
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
    // Outside of the map, whose locks are for moments: this may ask the owner for seconds.
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

  /** Does not wait for threads that map: callers must not block. */
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
    return name.kind() == CudaMemoryKind.PLAIN ? mapPlain(name, device) : mapVmm(name, device);
  }

  /** Looked up rather than believed: an address that a peer sends is not followed. */
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
      allocation.makeReachableBy(device);
      return new CudaMapping(context, name, allocation.address(), allocation::release);
    } catch (RuntimeException | Error e) {
      allocation.release();
      throw e;
    }
  }

  private CudaMapping mapPlain(CudaMemoryName name, CudaDevice device) {
    device.requireReachable(name.pciBusId());
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
          String.format(
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
    try {
      requireBehind(mapping.address(), name);
      return mapping;
    } catch (RuntimeException | Error e) {
      mapping.release();
      throw e;
    }
  }

  /** A handle does not say how much it opens, and the peer's word for it is not believed. */
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

  private CudaMapping mapVmm(CudaMemoryName name, CudaDevice device) {
    device.requireReachable(name.pciBusId());
    VmmMapping mapped = VmmMapping.of(context, name);
    return new CudaMapping(context, name, mapped.address(), mapped::unmap);
  }
}

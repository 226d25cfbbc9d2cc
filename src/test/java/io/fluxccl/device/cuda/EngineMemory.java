// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import static io.fluxccl.device.cuda.EngineStream.check;

import java.util.ArrayDeque;
import java.util.Deque;
import java.util.EnumMap;
import java.util.Map;
import jcuda.Pointer;
import jcuda.driver.CUdeviceptr;
import jcuda.driver.CUmemLocation;
import jcuda.driver.CUmemPoolProps;
import jcuda.driver.CUmemoryPool;
import jcuda.driver.CUstream;
import jcuda.driver.JCudaDriver;

/**
 * GPU memory that engines allocate with the driver, without this library. Like PyTorch's caching
 * allocator, it cuts tensors from blocks. Closing it frees the memory.
 */
public final class EngineMemory implements AutoCloseable {
  /** Kinds of memory from which tensors are allocated. */
  public enum Kind {
    /** {@code cudaMalloc} of 2 MiB, for small tensors. */
    SMALL_BLOCK(true),
    /** {@code cudaMalloc} of 20 MiB. */
    LARGE_BLOCK(true),
    /** {@code cudaMallocAsync}, from the GPU's own pool. */
    POOL(false),
    /** {@code cudaMallocAsync}, from a pool that was made to be shared. */
    SHAREABLE_POOL(true),
    /** Ranges of 2 MiB, mapped at consecutive addresses. */
    EXPANDABLE_SEGMENT(true);

    /** Whether ranks can map memory of this kind. */
    public final boolean isShareable;

    Kind(boolean isShareable) {
      this.isShareable = isShareable;
    }
  }

  private static final long MIB = 1 << 20;
  private static final int ALIGNMENT = 512;
  private static final int POSIX_DESCRIPTOR = 1;
  private static final int PINNED = 1;
  private static final int ON_DEVICE = 1;

  private final CudaDevice device;
  private final Deque<Runnable> frees = new ArrayDeque<>();
  private final Map<Kind, long[]> blocks = new EnumMap<>(Kind.class);
  private CUmemoryPool pool;

  public EngineMemory(CudaDevice device) {
    this.device = device;
  }

  /** Returns whether the driver and JCuda support this kind. */
  public boolean has(Kind kind) {
    try {
      tensor(kind, 512);
      return true;
    } catch (IllegalStateException e) {
      return false;
    }
  }

  /** Returns a wrapped tensor. */
  public CudaBuffer allocate(Kind kind, long bytes) {
    return device.wrap(tensor(kind, bytes), bytes);
  }

  /** Returns the address of a tensor. */
  public long tensor(Kind kind, long bytes) {
    device.makeCurrent();
    long[] block = blocks.get(kind); // next free address, end
    if (block == null || block[1] - block[0] < bytes) {
      block = newBlock(kind, bytes);
      blocks.put(kind, block);
    }
    long address = block[0] + ALIGNMENT; // never the start of a block
    block[0] += ALIGNMENT + (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return address;
  }

  private long[] newBlock(Kind kind, long bytes) {
    long least =
        switch (kind) {
          case SMALL_BLOCK, POOL, SHAREABLE_POOL -> 2 * MIB;
          case LARGE_BLOCK -> 20 * MIB;
          case EXPANDABLE_SEGMENT -> 8 * MIB;
        };
    long size = Math.max(least, (bytes + ALIGNMENT + 2 * MIB - 1) / (2 * MIB) * (2 * MIB));
    long start =
        switch (kind) {
          case SMALL_BLOCK, LARGE_BLOCK -> malloc(size);
          case POOL -> mallocAsync(size, null);
          case SHAREABLE_POOL -> mallocAsync(size, shareablePool());
          case EXPANDABLE_SEGMENT -> segment(size);
        };
    // A tensor of a segment starts in its first range, and most tensors cross into the next.
    return new long[] {
      kind == Kind.EXPANDABLE_SEGMENT && bytes > 1024 ? start + 2 * MIB - 1024 : start, start + size
    };
  }

  /** {@code cudaMalloc}. */
  public long malloc(long size) {
    device.makeCurrent();
    CUdeviceptr pointer = new CUdeviceptr();
    check(JCudaDriver.cuMemAlloc(pointer, size), "cuMemAlloc");
    frees.push(() -> JCudaDriver.cuMemFree(pointer));
    return CudaPointer.valueOf(pointer);
  }

  private long mallocAsync(long size, CUmemoryPool from) {
    CUdeviceptr pointer = new CUdeviceptr();
    CUstream stream = new CUstream();
    check(JCudaDriver.cuStreamCreate(stream, 1), "cuStreamCreate");
    check(
        from == null
            ? JCudaDriver.cuMemAllocAsync(pointer, size, stream)
            : JCudaDriver.cuMemAllocFromPoolAsync(pointer, size, from, stream),
        "cuMemAllocAsync");
    check(JCudaDriver.cuStreamSynchronize(stream), "cuStreamSynchronize");
    frees.push(
        () -> {
          JCudaDriver.cuMemFreeAsync(pointer, stream);
          JCudaDriver.cuStreamSynchronize(stream);
          JCudaDriver.cuStreamDestroy(stream);
        });
    return CudaPointer.valueOf(pointer);
  }

  private CUmemoryPool shareablePool() {
    if (pool == null) {
      CUmemoryPool made = new CUmemoryPool();
      CUmemPoolProps props =
          new CUmemPoolProps(
              PINNED,
              POSIX_DESCRIPTOR,
              new CUmemLocation(ON_DEVICE, device.index()),
              new Pointer());
      check(JCudaDriver.cuMemPoolCreate(made, props), "cuMemPoolCreate");
      frees.push(() -> JCudaDriver.cuMemPoolDestroy(made));
      pool = made;
    }
    return pool;
  }

  private long segment(long size) {
    long piece = 2 * MIB;
    long[] result = new long[1];
    // Reserves more than it maps, as a segment grows.
    check(VmmCalls.reserve(4 * size, 0, result), "cuMemAddressReserve");
    long start = result[0];
    frees.push(() -> VmmCalls.free(start, 4 * size));
    for (long at = start; at < start + size; at += piece) {
      check(VmmCalls.create(device.index(), piece, result), "cuMemCreate");
      check(VmmCalls.map(at, piece, result[0]), "cuMemMap");
      check(VmmCalls.release(result[0]), "cuMemRelease"); // the mapping stays valid
      check(VmmCalls.setAccess(at, piece, new int[] {device.index()}), "cuMemSetAccess");
      long mapped = at;
      frees.push(() -> VmmCalls.unmap(mapped, piece));
    }
    return start;
  }

  @Override
  public void close() {
    device.makeCurrent();
    while (!frees.isEmpty()) {
      frees.pop().run();
    }
  }
}

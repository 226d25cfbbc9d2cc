// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import io.fluxccl.DeviceFailure;
import io.fluxccl.InvalidUsage;
import io.fluxccl.NativeLibrary;
import io.fluxccl.Text;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Optional;
import jcuda.CudaException;
import jcuda.Pointer;
import jcuda.driver.CUmemorytype;
import jcuda.driver.CUpointer_attribute;
import jcuda.driver.CUresult;
import jcuda.driver.JCudaDriver;

/**
 * GPU memory that other code in this process has allocated and will free: the allocation that
 * contains a wrapped range or, of VMM memory, the pieces that the range touches. It is shared with
 * peers if its kind permits. After the last user has released it, only the resources for sharing
 * are released.
 */
final class ForeignMemory extends CudaMemory {
  private enum Kind {
    LEGACY("cuMemAlloc memory"),
    VMM("VMM memory"),
    POOL("memory of a pool"),
    MANAGED("managed memory");

    final String text;

    Kind(String text) {
      this.text = text;
    }
  }

  private final Kind kind;
  private final Attributes attributes;
  private final List<Long> pieces;
  private Optional<String> unshareable; // null until the first query; guarded by this

  private ForeignMemory(
      CudaDevice device, Attributes attributes, Kind kind, long base, List<Long> pieces) {
    super(device, base, pieces.stream().mapToLong(Long::longValue).sum());
    this.kind = kind;
    this.attributes = attributes;
    this.pieces = pieces;
  }

  /** Returns the buffer that {@link CudaDevice#wrap(long, long)} describes. */
  static CudaBuffer wrap(CudaDevice device, long address, long bytes) {
    if (address == 0 || bytes < 1 || address + bytes < address) {
      throw InvalidUsage.of(
          "wrap of 0x%x, %d bytes; give an address of GPU memory and 1 byte or more",
          address, bytes);
    }
    PrimaryContext context = device.context();
    Attributes found = Attributes.of(context, address);
    found.requireUsable(context, address);
    Kind kind = found.kind();
    long[] base = {address};
    List<Long> pieces = kind == Kind.MANAGED ? List.of(bytes) : pieces(kind, base, bytes);
    ForeignMemory whole = new ForeignMemory(device, found, kind, base[0], pieces);
    return new CudaBuffer(device, whole, address - base[0], bytes);
  }

  /**
   * Returns the sizes of the contiguous allocations that contain a range. The driver describes one
   * allocation per call. VMM memory, such as a segment that grows, can consist of several.
   *
   * @param base in: the range's address; out: the address of the first allocation
   */
  private static List<Long> pieces(Kind kind, long[] base, long bytes) {
    long address = base[0];
    long end = address + bytes;
    long at = address;
    List<Long> sizes = new ArrayList<>();
    while (at < end && (sizes.isEmpty() || kind == Kind.VMM)) {
      long[] size = new long[1];
      long start = rangeAt(at, size);
      if (size[0] == 0) {
        break;
      }
      if (sizes.isEmpty()) {
        base[0] = start;
      }
      sizes.add(size[0]);
      at = start + size[0];
    }
    if (at < end) {
      throw InvalidUsage.of(
          "wrap of 0x%x, %d bytes: the allocation ends %d bytes before; give a range within one"
              + " allocation",
          address, bytes, end - at);
    }
    return sizes;
  }

  private static long rangeAt(long address, long[] size) {
    CudaPointer start = new CudaPointer();
    CudaPointer at = new CudaPointer(address);
    int result = CudaError.result(() -> JCudaDriver.cuMemGetAddressRange(start, size, at));
    size[0] = result == CUresult.CUDA_SUCCESS ? size[0] : 0;
    return CudaPointer.valueOf(start);
  }

  @Override
  synchronized Optional<String> unshareableReason() {
    requireNotFreed(); // also if it was shared before
    if (unshareable == null) {
      try {
        name();
        unshareable = Optional.empty();
      } catch (DeviceFailure e) {
        unshareable = Optional.of(e.getMessage());
      }
    }
    return unshareable;
  }

  @Override
  CudaMemoryName share() {
    requireNotFreed();
    try {
      return switch (kind) {
        case LEGACY -> sharePlain();
        case VMM -> sharePieces();
        case POOL -> sharePool();
        case MANAGED -> throw refused("the driver can't share it between processes");
      };
    } catch (DeviceFailure e) {
      free();
      throw e;
    } catch (CudaException e) {
      free();
      throw refused(e.getMessage());
    }
  }

  /**
   * Refuses freed memory: another allocation, which must not be shared, may now have its address.
   */
  private void requireNotFreed() {
    Attributes now = Attributes.of(context, address());
    if (now.memoryType == 0 || now.bufferId != attributes.bufferId) {
      throw InvalidUsage.of(
          "%s was freed by its owner; keep wrapped memory until its buffer, its registrations on"
              + " all ranks and the work that uses it are closed and done",
          this);
    }
  }

  private CudaMemoryName sharePieces() {
    requireLibrary();
    if (new HashSet<>(pieces).size() > 1 || pieces.size() > CudaMemoryName.MAX_PIECES) {
      throw refused(
          Text.of(
              "it consists of %d pieces; up to %d of equal size can be shared",
              pieces.size(), CudaMemoryName.MAX_PIECES));
    }
    for (int piece = 0; piece < pieces.size(); piece++) {
      long[] handle = new long[1];
      checkShared(
          VmmCalls.retain(address() + piece * pieces.get(0), handle),
          "cuMemRetainAllocationHandle");
      handles.add(handle[0]);
    }
    return shareVmm();
  }

  private CudaMemoryName sharePool() {
    requireLibrary();
    int[] descriptor = new int[1];
    checkShared(
        VmmCalls.exportPool(attributes.pool, descriptor),
        "cuMemPoolExportToShareableHandle, for which cuMemPoolCreate must have been given POSIX"
            + " file descriptors as handleTypes,");
    offer(descriptor[0]);
    byte[] data = new byte[CudaMemoryName.HANDLE_LENGTH];
    checkShared(VmmCalls.exportPointer(address(), data), "cuMemPoolExportPointer");
    byte[] token = offers.get(0).token();
    byte[] secret = new byte[token.length + data.length];
    System.arraycopy(token, 0, secret, 0, token.length);
    System.arraycopy(data, 0, secret, token.length, data.length);
    return nameOfOffers(CudaMemoryKind.POOL, secret);
  }

  private void requireLibrary() {
    NativeLibrary.require("sharing " + kind.text);
  }

  @Override
  void checkShared(int result, String call) {
    if (result != CUresult.CUDA_SUCCESS) {
      throw refused(call + " answers " + CUresult.stringFor(result));
    }
  }

  /**
   * Returns the failure. The text omits the address, so that it is equal for all memory of a kind.
   */
  private DeviceFailure refused(String why) {
    return new DeviceFailure(0, "UNSHAREABLE", kind.text + ": " + why);
  }

  /**
   * {@inheritDoc}
   *
   * <p>Maps VMM memory a second time for another GPU, so that the access rights of the owner's
   * mapping stay unchanged.
   */
  @Override
  synchronized CudaMapping mapFor(CudaDevice other, CudaMemoryName asName) {
    if (kind == Kind.LEGACY || other.index() == device.index()) {
      return super.mapFor(other, asName);
    }
    other.requireReachable(device.pciBusId());
    other.makeCurrent();
    if (kind == Kind.POOL) {
      checkShared(VmmCalls.setPoolAccess(attributes.pool, other.index()), "cuMemPoolSetAccess");
      return new CudaMapping(other.context(), asName, address(), this::release);
    }
    return CudaMapping.ofPieces(other.context(), asName, handles, this::release);
  }

  /**
   * Returns whether it was shared. Otherwise the deferred-free thread, which waits for a gap
   * between kernels, is not needed.
   */
  @Override
  synchronized boolean hasToFree() {
    return !offers.isEmpty();
  }

  /** Withdraws the offers and releases the handles; the memory belongs to its owner. */
  @Override
  synchronized void free() {
    offers.forEach(DescriptorServer.Offer::close);
    offers.clear();
    handles.forEach(VmmCalls::release);
    handles.clear();
  }

  /**
   * The driver's attributes of an address. A value that the driver does not return is 0.
   *
   * @param memoryType {@code CU_MEMORYTYPE_}; 0 if the driver does not know the address
   * @param context in which it was allocated; 0 for memory of all contexts, such as VMM and pool
   *     memory
   * @param device the GPU's number
   * @param bufferId identifies the allocation; unlike an address it is never reused
   * @param managed whether the driver moves it between host and GPU
   * @param legacyIpc whether {@code cuIpcGetMemHandle} accepts it
   * @param pool the memory pool that contains it, or 0
   */
  private record Attributes(
      long memoryType,
      long context,
      long device,
      long bufferId,
      boolean managed,
      boolean legacyIpc,
      long pool) {
    static Attributes of(PrimaryContext context, long address) {
      context.makeCurrent();
      return new Attributes(
          query(address, CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE),
          query(address, CUpointer_attribute.CU_POINTER_ATTRIBUTE_CONTEXT),
          query(address, CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL),
          query(address, CUpointer_attribute.CU_POINTER_ATTRIBUTE_BUFFER_ID),
          query(address, CUpointer_attribute.CU_POINTER_ATTRIBUTE_IS_MANAGED) != 0,
          query(address, CUpointer_attribute.CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE) != 0,
          query(address, CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE));
    }

    private static long query(long address, int attribute) {
      long[] value = new long[1];
      Pointer target = Pointer.to(value);
      CudaPointer at = new CudaPointer(address);
      int result = CudaError.result(() -> JCudaDriver.cuPointerGetAttribute(target, attribute, at));
      return result == CUresult.CUDA_SUCCESS ? value[0] : 0;
    }

    Kind kind() {
      if (managed) {
        return Kind.MANAGED;
      }
      return pool != 0 ? Kind.POOL : legacyIpc ? Kind.LEGACY : Kind.VMM;
    }

    /**
     * Refuses an address unless it is GPU memory that kernels of the primary context can use.
     *
     * @param address for the message
     * @throws InvalidUsage saying what it is
     */
    void requireUsable(PrimaryContext of, long address) {
      String problem = problem(of);
      if (!problem.isEmpty()) {
        throw InvalidUsage.of("wrap of 0x%x on GPU %d: %s", address, of.ordinal, problem);
      }
    }

    private String problem(PrimaryContext of) {
      if (memoryType == 0) {
        return "the driver knows no memory there; give an address of GPU memory that is allocated";
      }
      if (memoryType != CUmemorytype.CU_MEMORYTYPE_DEVICE
          && memoryType != CUmemorytype.CU_MEMORYTYPE_UNIFIED) {
        return "that is memory of the host, not of a GPU";
      }
      if (!managed && device != of.ordinal) {
        return "that is memory of GPU " + device + "; wrap it with the CudaDevice of that GPU";
      }
      return context == 0 || context == CudaPointer.valueOf(of.handle)
          ? ""
          : "it was allocated in another context than the GPU's primary one; use"
              + " cuDevicePrimaryCtxRetain, or the runtime API, in place of cuCtxCreate";
    }
  }
}

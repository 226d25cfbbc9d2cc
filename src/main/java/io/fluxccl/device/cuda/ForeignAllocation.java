// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import io.fluxccl.DeviceFailure;
import io.fluxccl.InvalidUsage;
import io.fluxccl.NativeLibrary;
import io.fluxccl.Text;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.stream.LongStream;
import jcuda.CudaException;
import jcuda.driver.CUresult;
import jcuda.driver.JCudaDriver;

/**
 * GPU memory that other code in this process has allocated and will free: the allocation that
 * contains a wrapped range or, of VMM memory, the pieces that the range touches. It is shared with
 * peers if its kind permits. After the last user has released it, only the resources for sharing
 * are released.
 */
final class ForeignAllocation extends CudaAllocation {
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
  private final PointerAttributes attributes;
  private final long[] pieces;

  // All guarded by this.
  private Optional<String> unshareable; // null until the first query
  private final List<DescriptorServer.Offer> offers = new ArrayList<>();
  private final List<Long> handles = new ArrayList<>();

  private ForeignAllocation(
      CudaDevice device, PointerAttributes attributes, Kind kind, long base, long[] pieces) {
    super(device, base, LongStream.of(pieces).sum());
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
    PointerAttributes found = PointerAttributes.of(context, address);
    found.requireUsable(context, address);
    Kind kind = kindOf(found);
    long[] base = {address};
    long[] pieces = kind == Kind.MANAGED ? new long[] {bytes} : pieces(kind, base, bytes);
    ForeignAllocation whole = new ForeignAllocation(device, found, kind, base[0], pieces);
    return new CudaBuffer(device, whole, address - base[0], bytes);
  }

  private static Kind kindOf(PointerAttributes found) {
    if (found.managed()) {
      return Kind.MANAGED;
    }
    if (found.pool() != 0) {
      return Kind.POOL;
    }
    return found.legacyIpc() ? Kind.LEGACY : Kind.VMM;
  }

  /**
   * Returns the sizes of the contiguous allocations that contain a range. The driver describes one
   * allocation per call. VMM memory, such as a segment that grows, can consist of several.
   *
   * @param base in: the range's address; out: the address of the first allocation
   */
  private static long[] pieces(Kind kind, long[] base, long bytes) {
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
    return sizes.stream().mapToLong(Long::longValue).toArray();
  }

  private static long rangeAt(long address, long[] size) {
    CudaPointer start = new CudaPointer();
    try {
      int result = JCudaDriver.cuMemGetAddressRange(start, size, new CudaPointer(address));
      size[0] = result == CUresult.CUDA_SUCCESS ? size[0] : 0;
    } catch (CudaException e) { // the application lets JCuda throw
      size[0] = 0;
    }
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
        case LEGACY -> PlainAllocation.nameOf(this);
        case VMM -> shareVmm();
        case POOL -> sharePool();
        case MANAGED -> throw refused("the driver can't share it between processes");
      };
    } catch (DeviceFailure e) {
      unshare();
      throw e;
    } catch (CudaException e) {
      unshare();
      throw refused(e.getMessage());
    }
  }

  /**
   * Refuses freed memory: another allocation, which must not be shared, may now have its address.
   */
  private void requireNotFreed() {
    PointerAttributes now = PointerAttributes.of(device().context(), address());
    if (now.memoryType() == 0 || now.bufferId() != attributes.bufferId()) {
      throw InvalidUsage.of(
          "%s was freed by its owner; keep wrapped memory until its buffer, its registrations on"
              + " all ranks and the work that uses it are closed and done",
          this);
    }
  }

  private CudaMemoryName shareVmm() {
    require();
    if (LongStream.of(pieces).distinct().count() > 1 || pieces.length > CudaMemoryName.MAX_PIECES) {
      throw refused(
          Text.of(
              "it consists of %d pieces; up to %d of equal size can be shared",
              pieces.length, CudaMemoryName.MAX_PIECES));
    }
    byte[] token = null;
    for (int piece = 0; piece < pieces.length; piece++) {
      long[] handle = new long[1];
      check(VmmCalls.retain(address() + piece * pieces[0], handle), "cuMemRetainAllocationHandle");
      handles.add(handle[0]);
      int[] descriptor = new int[1];
      check(
          VmmCalls.exportDescriptor(handle[0], descriptor),
          "cuMemExportToShareableHandle, for which cuMemCreate must have been given POSIX file"
              + " descriptors as requestedHandleTypes,");
      token = offer(descriptor[0], token, piece);
    }
    return new CudaMemoryName(
        CudaMemoryKind.VMM,
        id(),
        size(),
        device().pciBusId(),
        offers.get(0).socketName(),
        token,
        pieces.length);
  }

  private CudaMemoryName sharePool() {
    require();
    int[] descriptor = new int[1];
    check(
        PoolCalls.exportPool(attributes.pool(), descriptor),
        "cuMemPoolExportToShareableHandle, for which cuMemPoolCreate must have been given POSIX"
            + " file descriptors as handleTypes,");
    byte[] token = offer(descriptor[0], null, 0);
    byte[] data = new byte[CudaMemoryName.HANDLE_LENGTH];
    check(PoolCalls.exportPointer(address(), data), "cuMemPoolExportPointer");
    byte[] secret = new byte[token.length + data.length];
    System.arraycopy(token, 0, secret, 0, token.length);
    System.arraycopy(data, 0, secret, token.length, data.length);
    return new CudaMemoryName(
        CudaMemoryKind.POOL,
        id(),
        size(),
        device().pciBusId(),
        offers.get(0).socketName(),
        secret,
        1);
  }

  /** Offers a descriptor to peers; returns the token of the first. */
  private byte[] offer(int descriptor, byte[] first, int piece) {
    DescriptorServer server = DescriptorServer.PROCESS;
    DescriptorServer.Offer offer =
        first == null
            ? server.offer(descriptor)
            : server.offer(descriptor, DescriptorServer.tokenOf(first, piece));
    offers.add(offer);
    return first == null ? offer.token() : first;
  }

  private void require() {
    NativeLibrary.require("sharing " + kind.text);
  }

  private void check(int result, String call) {
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
    if (kind == Kind.LEGACY || other.index() == device().index()) {
      return super.mapFor(other, asName);
    }
    other.requireReachable(device().pciBusId());
    other.makeCurrent();
    if (kind == Kind.POOL) {
      check(PoolCalls.setAccess(attributes.pool(), other.index()), "cuMemPoolSetAccess");
      return new CudaMapping(other.context(), asName, address(), this::release);
    }
    long[] all = handles.stream().mapToLong(Long::longValue).toArray();
    VmmMapping mapped = VmmMapping.map(other.context(), all, size(), new int[] {other.index()});
    return new CudaMapping(
        other.context(),
        asName,
        mapped.address(),
        () -> {
          try {
            mapped.unmap();
          } finally {
            release();
          }
        });
  }

  /**
   * Returns whether it was shared. Otherwise the deferred-free thread, which waits for a gap
   * between kernels, is not needed.
   */
  @Override
  synchronized boolean hasToFree() {
    return !offers.isEmpty();
  }

  @Override
  synchronized void free() {
    unshare();
  }

  /** Withdraws the offers and releases the handles. The caller holds this object's lock. */
  private void unshare() {
    offers.forEach(DescriptorServer.Offer::close);
    offers.clear();
    handles.forEach(VmmCalls::release);
    handles.clear();
  }
}

package io.fluxccl.netplugin.vendor;

import io.fluxccl.netplugin.NetRequest;
import org.agrona.UnsafeApi;

/** A request of a vendor's plugin; used again after it was done. */
final class VendorRequest implements NetRequest {
  private final VendorComm comm;
  private final long sizes;
  private final int places;
  private long request;
  private boolean hasSizes;

  /**
   * @param sizes the address of {@code places} ints
   */
  VendorRequest(VendorComm comm, long sizes, int places) {
    this.comm = comm;
    this.sizes = sizes;
    this.places = places;
  }

  void start(long started, boolean withSizes) {
    request = started;
    hasSizes = withSizes;
  }

  @Override
  public boolean test() {
    comm.gate().enter();
    try {
      int result =
          NetPluginCalls.test(comm.plugin().plugin(), request, hasSizes ? sizes : 0, places);
      if (result != 0) {
        comm.free(this);
      }
      comm.plugin().check(Math.min(0, result), "test");
      return result > 0;
    } finally {
      comm.gate().exit();
    }
  }

  @Override
  public long size(int index) {
    return hasSizes ? UnsafeApi.getInt(sizes + (long) index * Integer.BYTES) : 0;
  }
}

package io.fluxccl.netplugin.vendor;

import io.fluxccl.InvalidUsage;
import io.fluxccl.netplugin.NetMemory;
import io.fluxccl.netplugin.NetRequest;
import io.fluxccl.netplugin.PointerType;
import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import org.agrona.BufferUtil;
import org.agrona.UnsafeApi;

/**
 * What moves data in a vendor's network: an end of a connection, or a group. Its memory is
 * registered with it; its requests are kept and used again, so that posting and testing allocate
 * nothing.
 */
abstract class VendorComm<N extends VendorNetwork> extends VendorObject<N> {
  private static final int SIZE_T_REGISTRATIONS = 8;
  private static final int MIN_SIZES = 8;

  // All below is used inside the gate.
  private final List<Registration> registrations = new ArrayList<>();
  private final ByteBuffer sizes;
  private final int places;
  private final int requests;
  private final ArrayDeque<Request> free;

  /**
   * @param requests how many can be in flight
   * @param sizesEach how many sizes a request has
   */
  VendorComm(N network, long comm, String what, int requests, int sizesEach) {
    super(network, comm, what);
    // Room for what a plugin writes that always writes a group's.
    this.places = Math.max(MIN_SIZES, sizesEach);
    this.sizes = BufferUtil.allocateDirectAligned(requests * places * Integer.BYTES, 64);
    this.requests = requests;
    this.free = new ArrayDeque<>(requests);
    for (long i = 0; i < requests; i++) {
      free.push(new Request(BufferUtil.address(sizes) + i * places * Integer.BYTES));
    }
  }

  /** Calls the plugin's {@code regMr}. */
  abstract int register(long address, long size, int type, long[] memory);

  /** Calls the plugin's {@code deregMr}. */
  abstract int deregister(long memory);

  /** Calls the plugin's {@code test}. */
  abstract int test(long request, long sizesAt, int places);

  /** Closes the native object, which has no memory any more. */
  abstract void closeComm();

  public NetMemory register(long address, long size, PointerType type) {
    if (size > Integer.MAX_VALUE && network().version() < SIZE_T_REGISTRATIONS) {
      throw InvalidUsage.of(
          "%s registers less than 2 GiB at once, not %s bytes; register pieces", network(), size);
    }
    return keep(
        "regMr", address, size, type, memory -> register(address, size, type.bit(), memory));
  }

  /** Calls a plugin's registration, which stores its handle. */
  interface Registering {
    int register(long[] memory);
  }

  /** Registers memory and keeps the registration until it is closed, or this. */
  final NetMemory keep(
      String call, long address, long size, PointerType type, Registering registering) {
    gate().enter();
    try {
      long[] memory = new long[1];
      String what = call + " of " + size + " bytes of " + type + " memory";
      network().check(registering.register(memory), what);
      Registration registration = new Registration(address, size, memory[0]);
      registrations.add(registration);
      return registration;
    } finally {
      gate().exit();
    }
  }

  /** Refuses to post more than there are objects for. Inside the gate. */
  final void requireFree() {
    if (free.isEmpty()) {
      throw InvalidUsage.of("%s requests are in flight in %s, which is all", requests, gate());
    }
  }

  /** Returns the object for a request that the plugin gave; null if it gave none. In the gate. */
  final NetRequest started(long request, boolean hasSizes, String call) {
    network().checkObject(request, call);
    if (request == 0) {
      return null;
    }
    Request started = free.pop();
    started.request = request;
    started.hasSizes = hasSizes;
    started.inFlight = true;
    return started;
  }

  @Override
  final void free() {
    registrations.forEach(registration -> deregister(registration.handle));
    registrations.clear();
    closeComm();
  }

  /** Returns the plugin's handle of memory that was registered with this. */
  static long handleOf(NetMemory memory) {
    return ((VendorComm<?>.Registration) memory).handle;
  }

  /** Memory that is registered with this. */
  final class Registration implements NetMemory {
    private final long address;
    private final long size;
    private final long handle;
    private boolean closed;

    private Registration(long address, long size, long handle) {
      this.address = address;
      this.size = size;
      this.handle = handle;
    }

    boolean isOf(VendorComm<?> other) {
      return !closed && other == VendorComm.this;
    }

    /** Refuses bytes that are not all of this memory. */
    void check(long from, long length) {
      long offset = from - address;
      if (offset < 0 || length < 0 || length > size - offset) {
        throw InvalidUsage.of(
            "offset=%s, size=%s is outside of the %s bytes that are registered",
            offset, length, size);
      }
    }

    @Override
    public void close() {
      // With its comm it has gone already.
      if (closed || gate().isClosed()) {
        return;
      }
      gate().enter();
      try {
        closed = true;
        registrations.remove(this);
        network().check(deregister(handle), "deregMr");
      } finally {
        gate().exit();
      }
    }
  }

  /** A request; used again after it was done. */
  private final class Request implements NetRequest {
    private final long sizesAt;
    private long request;
    private boolean hasSizes;
    private boolean inFlight;

    Request(long sizesAt) {
      this.sizesAt = sizesAt;
    }

    @Override
    public boolean test() {
      gate().enter();
      try {
        if (!inFlight) {
          throw new InvalidUsage("test of a request of " + gate() + " that is over");
        }
        int result = VendorComm.this.test(request, hasSizes ? sizesAt : 0, places);
        if (result != 0) {
          inFlight = false;
          free.push(this);
        }
        network().checkObject(result, "test");
        return result > 0;
      } finally {
        gate().exit();
      }
    }

    @Override
    public long size(int index) {
      return hasSizes ? UnsafeApi.getInt(sizesAt + (long) index * Integer.BYTES) : 0;
    }
  }
}

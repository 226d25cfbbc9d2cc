// SPDX-License-Identifier: Apache-2.0
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
 * A comm of a vendor's network: an end of a connection, or a group. Memory is registered with it.
 * It keeps its request objects and reuses them, so that posting and testing allocate nothing.
 */
abstract class VendorComm<N extends VendorNetwork> extends VendorObject<N> {
  private static final int SIZE_T_REGISTRATIONS = 8;
  private static final int MIN_SIZES = 8;

  // The fields below are used only inside the gate.
  private final List<PluginRegistration> registrations = new ArrayList<>();
  private final ByteBuffer sizes;
  private final int places;
  private final int requests;
  private final ArrayDeque<Request> free;

  /**
   * Creates a comm.
   *
   * @param comm the native object
   * @param what the name of the comm, for messages
   * @param requests the most requests in flight
   * @param sizesEach the number of sizes of a request
   */
  VendorComm(N network, long comm, String what, int requests, int sizesEach) {
    super(network, comm, what);
    // Room for a plugin that writes the sizes of a whole group for every request.
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

  /** Closes the native object, whose registrations have ended already. */
  abstract void closeComm();

  public NetMemory register(long address, long size, PointerType type) {
    if (size > Integer.MAX_VALUE && network().version() < SIZE_T_REGISTRATIONS) {
      throw InvalidUsage.of(
          "%s registers less than 2 GiB at once, not %s bytes; register pieces", network(), size);
    }
    return keep(
        "regMr", address, size, type, memory -> register(address, size, type.bit(), memory));
  }

  /** Calls a plugin's registration function, which stores the plugin's handle. */
  interface Registering {
    int register(long[] memory);
  }

  /** Registers memory and keeps the registration until the registration or this comm is closed. */
  final NetMemory keep(
      String call, long address, long size, PointerType type, Registering registering) {
    gate().enter();
    try {
      long[] memory = new long[1];
      String what = call + " of " + size + " bytes of " + type + " memory";
      network().check(registering.register(memory), what);
      PluginRegistration registration = new PluginRegistration(address, size, memory[0]);
      registrations.add(registration);
      return registration;
    } finally {
      gate().exit();
    }
  }

  /** Refuses to post if all request objects are in flight. Called inside the gate. */
  final void requireFree() {
    if (free.isEmpty()) {
      throw InvalidUsage.of("%s requests are in flight in %s, which is all", requests, gate());
    }
  }

  /**
   * Returns the object for a request that the plugin returned; null if it returned none. Called
   * inside the gate.
   */
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

  /** Returns the plugin's handle of memory that was registered with this comm. */
  static long handleOf(NetMemory memory) {
    return ((VendorComm<?>.PluginRegistration) memory).handle;
  }

  /** Memory that is registered with this comm. */
  final class PluginRegistration implements NetMemory {
    private final long address;
    private final long size;
    private final long handle;
    private boolean closed;

    private PluginRegistration(long address, long size, long handle) {
      this.address = address;
      this.size = size;
      this.handle = handle;
    }

    boolean isOf(VendorComm<?> other) {
      return !closed && other == VendorComm.this;
    }

    /** Refuses a range that is not within this memory. */
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
      // The close of the comm has ended the registration already.
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

  /** A request object, which is reused after the request is done. */
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

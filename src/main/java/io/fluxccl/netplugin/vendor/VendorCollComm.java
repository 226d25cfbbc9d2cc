// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.vendor;

import io.fluxccl.DataType;
import io.fluxccl.InvalidUsage;
import io.fluxccl.ReduceOp;
import io.fluxccl.netplugin.NetMemory;
import io.fluxccl.netplugin.NetPlugin;
import io.fluxccl.netplugin.NetProperties;
import io.fluxccl.netplugin.NetRequest;
import io.fluxccl.netplugin.PointerType;

/**
 * A group of a vendor's collective network, which checks its arguments. Its requests have no size,
 * because plugins disagree on the size of a reduction.
 */
final class VendorCollComm extends VendorComm<VendorCollNet> implements CollNetComm {
  private static final int SIZE_T_COUNTS = 9;

  private final NetProperties properties;

  VendorCollComm(VendorCollNet network, long comm, NetProperties properties) {
    super(network, comm, "a group", NetPlugin.MAX_REQUESTS, 1);
    this.properties = properties;
  }

  @Override
  public NetMemory register(long address, long size, PointerType type) {
    if (type == PointerType.DMABUF || !properties.pointers().contains(type) || size < 0) {
      throw InvalidUsage.of(
          "register with %s: size=%s, type=%s; the device reaches %s",
          network(), size, type, properties.pointers());
    }
    return super.register(address, size, type);
  }

  @Override
  public NetRequest iallreduce(
      long from,
      long to,
      long count,
      DataType type,
      ReduceOp op,
      NetMemory fromMemory,
      NetMemory toMemory) {
    long limit =
        network().version() < SIZE_T_COUNTS ? Integer.MAX_VALUE : Long.MAX_VALUE / type.size();
    if (count < 1 || count > limit) {
      throw InvalidUsage.of("iallreduce of %s: count=%s; give 1 to %s", network(), count, limit);
    }
    int opCode = VendorCollNet.codeOf(op);
    gate().enter();
    try {
      requireFree();
      long own = handleOf(fromMemory, from, count * type.size());
      long result = handleOf(toMemory, to, count * type.size());
      long request =
          CollNetCalls.iallreduce(
              net(), object(), from, to, count, type.ordinal(), opCode, own, result);
      return started(request, false, "iallreduce");
    } finally {
      gate().exit();
    }
  }

  @Override
  public NetRequest iflush(long address, long size, NetMemory memory) {
    gate().enter();
    try {
      requireFree();
      long registered = handleOf(memory, address, size);
      long request = CollNetCalls.iflush(net(), object(), address, size, registered);
      return started(request, false, "iflush");
    } finally {
      gate().exit();
    }
  }

  private long handleOf(NetMemory memory, long address, long size) {
    if (!(memory instanceof VendorComm<?>.PluginRegistration registration)
        || !registration.isOf(this)) {
      throw InvalidUsage.of(
          "the memory is not registered with this group of %s, or no longer", network());
    }
    registration.check(address, size);
    return handleOf(memory);
  }

  @Override
  int register(long address, long size, int type, long[] memory) {
    return CollNetCalls.register(net(), object(), address, size, type, memory);
  }

  @Override
  int deregister(long memory) {
    return CollNetCalls.deregister(net(), object(), memory);
  }

  @Override
  int test(long request, long sizesAt, int places) {
    return CollNetCalls.test(net(), request);
  }

  @Override
  void closeComm() {
    network().check(CollNetCalls.closeColl(net(), object()), "closeColl");
  }
}

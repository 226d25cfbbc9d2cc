// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.vendor;

import io.fluxccl.netplugin.NetComm;
import io.fluxccl.netplugin.NetMemory;
import io.fluxccl.netplugin.PointerType;

/** An end of a connection of a vendor's plugin. */
abstract class VendorConnection extends VendorComm<VendorPlugin> implements NetComm {
  private final int device;

  /**
   * Creates an end of a connection.
   *
   * @param comm the native object
   * @param requests the most requests in flight
   * @param sizesEach the number of sizes of a request
   */
  VendorConnection(VendorPlugin plugin, int device, long comm, int requests, int sizesEach) {
    super(plugin, comm, "a connection", requests, sizesEach);
    this.device = device;
  }

  @Override
  public final int device() {
    return device;
  }

  @Override
  public final String peer() {
    return "the peer on " + network().properties(device).name();
  }

  @Override
  public final NetMemory registerDmaBuf(
      long address, long size, PointerType type, long offset, int fileDescriptor) {
    return keep(
        "regMrDmaBuf",
        address,
        size,
        type,
        memory ->
            NetPluginCalls.registerDmaBuf(
                net(), object(), address, size, type.bit(), offset, fileDescriptor, memory));
  }

  @Override
  final int register(long address, long size, int type, long[] memory) {
    return NetPluginCalls.register(net(), object(), address, size, type, memory);
  }

  @Override
  final int deregister(long memory) {
    return NetPluginCalls.deregister(net(), object(), memory);
  }

  @Override
  final int test(long request, long sizesAt, int places) {
    return NetPluginCalls.test(net(), request, sizesAt, places);
  }
}

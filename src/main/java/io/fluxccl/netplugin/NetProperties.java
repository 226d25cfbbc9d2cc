// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin;

import io.fluxccl.InvalidUsage;
import java.util.Set;

/**
 * The properties of a network's device, from which NCCL plans its communication.
 *
 * @param name the device's name, for logs
 * @param pciPath the device's folder below {@code /sys}, or null for a virtual device
 * @param guid identifies the device; devices with the same number share one port to the fabric
 * @param pointers the kinds of memory that the device reaches
 * @param regIsGlobal whether a registration serves all comms of the device
 * @param forceFlush whether receives into CUDA memory need a flush even if the GPU orders writes
 * @param speedMbps the speed of the port, in 10^6 bits per second
 * @param port the number of the port, from 0 or 1
 * @param latencyMicros the latency of the network in microseconds, 0 if unknown
 * @param maxComms the most connections of the device
 * @param maxRecvs the most receives in a group, 1 or more
 * @param maxBytes the longest message in bytes
 */
public record NetProperties(
    String name,
    String pciPath,
    long guid,
    Set<PointerType> pointers,
    boolean regIsGlobal,
    boolean forceFlush,
    int speedMbps,
    int port,
    float latencyMicros,
    int maxComms,
    int maxRecvs,
    long maxBytes) {
  /** Refuses limits that are less than 1. */
  public NetProperties {
    pointers = Set.copyOf(pointers);
    if (maxRecvs < 1 || maxComms < 1 || maxBytes < 1) {
      throw InvalidUsage.of(
          "device %s: maxRecvs=%s, maxComms=%s and maxBytes=%s must be 1 or more",
          name, maxRecvs, maxComms, maxBytes);
    }
  }
}

package io.fluxccl.netplugin;

import io.fluxccl.InvalidUsage;
import java.util.Set;

/**
 * What a network's device is; NCCL plans by it.
 *
 * @param name for logs
 * @param pciPath the device's folder below {@code /sys}, or null where it is virtual
 * @param guid tells devices apart; those with the same share one port to the fabric
 * @param pointers the memory that it reaches
 * @param regIsGlobal whether a registration serves all comms of the device
 * @param forceFlush whether receives into CUDA memory need a flush even where the GPU orders writes
 * @param speedMbps of the port, in 10^6 bits per second
 * @param port its number, from 0 or 1
 * @param latencyMicros of the network, 0 where unknown
 * @param maxComms how many connections there can be
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
  /** Refuses what no device can be. */
  public NetProperties {
    pointers = Set.copyOf(pointers);
    if (maxRecvs < 1 || maxComms < 1 || maxBytes < 1) {
      throw InvalidUsage.of(
          "device %s: maxRecvs=%s, maxComms=%s and maxBytes=%s must be 1 or more",
          name, maxRecvs, maxComms, maxBytes);
    }
  }
}

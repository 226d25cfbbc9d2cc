package io.fluxccl.transport;

import io.fluxccl.device.Device;

/**
 * What a transport may know of the communicator that uses it.
 *
 * @param rank this rank
 * @param nRanks how many there are
 * @param hostHash this host's hash: equal on ranks that share a host
 * @param processHash this process's hash: equal on ranks that share a process
 * @param device where this rank's memory is
 * @param hostAddress an IP address by which the other ranks reach this host
 */
public record TransportEnvironment(
    int rank,
    int nRanks,
    long hostHash,
    long processHash,
    Device device,
    java.net.InetAddress hostAddress) {}

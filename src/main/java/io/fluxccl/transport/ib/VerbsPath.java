// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.ib;

/**
 * The way from a queue pair of this rank to a queue pair of a peer.
 *
 * @param queuePair the number of the peer's queue pair
 * @param sendPacket the number of the first packet that this end sends
 * @param receivePacket the number of the first packet that the peer sends
 * @param mtu the lesser MTU of both ports, as verbs encode it
 * @param lid the local identifier of the peer's port; 0 on Ethernet
 * @param ownGidIndex the index of this port's GID, the source of packets; -1 to send by LID
 * @param peerGid the 16 bytes of the peer's GID; empty to send by LID
 */
public record VerbsPath(
    int queuePair,
    int sendPacket,
    int receivePacket,
    int mtu,
    int lid,
    int ownGidIndex,
    byte[] peerGid) {}

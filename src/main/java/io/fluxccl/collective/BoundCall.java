// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.Experimental;

/**
 * A call and the registrations of its buffers, which give their addresses on the other ranks.
 * Algorithms get it.
 *
 * @param call the call
 * @param topology of the ranks that take part
 * @param inputRegistration the registration that holds the input, or null
 * @param outputRegistration the registration that holds the output, or null
 * @param signature of the call, 32 bits that are the same on every rank; with the epilogue, if the
 *     call is the all-reduce of a fused one
 */
@Experimental
public record BoundCall(
    CollectiveCall call,
    RankTopology topology,
    Registration inputRegistration,
    Registration outputRegistration,
    int signature) {
  /**
   * Returns the signature of the messages between this rank and a peer, in one direction: {@link
   * #signature}, and the bytes of both directions if only these two ranks know them.
   *
   * @param bytes of the direction
   * @param back bytes of the other direction
   */
  public int signature(long bytes, long back) {
    return CallSignature.between(signature, call, bytes, back);
  }

  /** Returns this rank. */
  public int rank() {
    return topology.rank();
  }

  /** Returns the number of ranks. */
  public int nRanks() {
    return topology.nRanks();
  }

  /** Returns {@link CollectiveCall#totalBytes}. */
  public long totalBytes() {
    return call.totalBytes(topology.nRanks());
  }

  /** Returns whether {@link #inputOn} may be used, for ranks whose memory is mapped. */
  public boolean isInputRegistered() {
    return inputRegistration != null;
  }

  /** Returns whether {@link #outputOn} may be used, for ranks whose memory is mapped. */
  public boolean isOutputRegistered() {
    return outputRegistration != null;
  }

  /**
   * Returns whether the buffers are registered that every rank has for this collective. That is the
   * same on every rank, although only the root has the other buffer. False for collectives that are
   * not {@linkplain Collective#isChosenByRegistration chosen by it}; their algorithms check the
   * registrations themselves.
   */
  public boolean isRegistered() {
    return call.collective().isChosenByRegistration()
        && (call.collective() == Collective.BROADCAST || isInputRegistered())
        && (call.collective() == Collective.REDUCE || isOutputRegistered());
  }

  /** Returns the address at which this rank reaches a rank's input. */
  public long inputOn(int rank) {
    return inputRegistration.addressOn(rank)
        + call.input().address()
        - inputRegistration.buffer().address();
  }

  /** Returns the address at which this rank reaches a rank's output. */
  public long outputOn(int rank) {
    return outputRegistration.addressOn(rank)
        + call.output().address()
        - outputRegistration.buffer().address();
  }

  /** Returns whether this rank's input and output share memory. */
  public boolean isInPlace() {
    return call.isInPlace(rank(), nRanks());
  }
}

package io.fluxccl.collective;

/**
 * A call and the registrations of its buffers, which give their addresses on the other ranks.
 * Algorithms get it; valid while it is being enqueued.
 */
public final class BoundCall {
  private final CollectiveCall call;
  private final RankTopology topology;
  private final Registration input;
  private final Registration output;

  BoundCall(CollectiveCall call, RankTopology topology, Registration input, Registration output) {
    this.call = call;
    this.topology = topology;
    this.input = input;
    this.output = output;
  }

  /** Returns the call. */
  public CollectiveCall call() {
    return call;
  }

  /** Returns the topology of the ranks that take part. */
  public RankTopology topology() {
    return topology;
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
    return input != null;
  }

  /** Returns whether {@link #outputOn} may be used, for ranks whose memory is mapped. */
  public boolean isOutputRegistered() {
    return output != null;
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

  /** Returns the registration that holds the input, or null. */
  public Registration inputRegistration() {
    return input;
  }

  /** Returns the registration that holds the output, or null. */
  public Registration outputRegistration() {
    return output;
  }

  /** Returns the address at which this rank reaches a rank's input. */
  public long inputOn(int rank) {
    return input.addressOn(rank) + call.input().address() - input.buffer().address();
  }

  /** Returns the address at which this rank reaches a rank's output. */
  public long outputOn(int rank) {
    return output.addressOn(rank) + call.output().address() - output.buffer().address();
  }

  /** Returns whether this rank's input and output share memory. */
  public boolean isInPlace() {
    return call.isInPlace(rank(), nRanks());
  }
}

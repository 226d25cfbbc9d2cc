package io.fluxccl.collective;

/**
 * A call with what is known of its buffers on the other ranks: what algorithms get. Valid while it
 * is being enqueued.
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

  /** What was asked. */
  public CollectiveCall call() {
    return call;
  }

  /** Who asks, among whom. */
  public RankTopology topology() {
    return topology;
  }

  /** This rank. */
  public int rank() {
    return topology.rank();
  }

  /** How many ranks. */
  public int nRanks() {
    return topology.nRanks();
  }

  /** {@link CollectiveCall#totalBytes}. */
  public long totalBytes() {
    return call.totalBytes(topology.nRanks());
  }

  /** Whether {@link #inputOn} may be used, for ranks whose memory is mapped. */
  public boolean isInputRegistered() {
    return input != null;
  }

  /** Whether {@link #outputOn} may be used, for ranks whose memory is mapped. */
  public boolean isOutputRegistered() {
    return output != null;
  }

  /**
   * Whether the buffers are registered that every rank has for this collective: the same on every
   * rank, also where only the root has the other one. False of collectives that are not {@linkplain
   * Collective#isChosenByRegistration chosen by it}; their algorithms look for themselves what is
   * registered.
   */
  public boolean isRegistered() {
    return call.collective().isChosenByRegistration()
        && (call.collective() == Collective.BROADCAST || isInputRegistered())
        && (call.collective() == Collective.REDUCE || isOutputRegistered());
  }

  /** The registration that the input lies in, or null. */
  public Registration inputRegistration() {
    return input;
  }

  /** The registration that the output lies in, or null. */
  public Registration outputRegistration() {
    return output;
  }

  /** Where this rank reaches a rank's input. */
  public long inputOn(int rank) {
    return input.addressOn(rank) + call.input().address() - input.buffer().address();
  }

  /** Where this rank reaches a rank's output. */
  public long outputOn(int rank) {
    return output.addressOn(rank) + call.output().address() - output.buffer().address();
  }

  /** Whether this rank's input and output share memory. */
  public boolean isInPlace() {
    return call.isInPlace(rank(), nRanks());
  }
}

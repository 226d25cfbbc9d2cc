package io.fluxccl.netplugin;

/** A row of the table of connections, as it was at a moment. Immutable. */
public final class ConnectionState {
  private final String operation;
  private final String peer;
  private final String device;
  private final int streams;
  private final long messages;
  private final long bytes;
  private final int inFlight;
  private final long oldestMillis;
  private final String failure;

  /**
   * A row.
   *
   * @param operation "send to" or "receive from"
   * @param peer address, host and process number of the other end
   * @param device the network interface or RDMA device
   * @param streams how many sockets or queue pairs large messages are spread over
   * @param traffic what is done
   * @param inFlight requests that are not done
   * @param oldestMillis for how long the oldest of them has waited
   * @param failure why the connection has failed, or empty
   */
  public ConnectionState(
      String operation,
      String peer,
      String device,
      int streams,
      TrafficCounter traffic,
      int inFlight,
      long oldestMillis,
      String failure) {
    this.operation = operation;
    this.peer = peer;
    this.device = device;
    this.streams = streams;
    this.messages = traffic.messages();
    this.bytes = traffic.bytes();
    this.inFlight = inFlight;
    this.oldestMillis = oldestMillis;
    this.failure = failure;
  }

  /** "send to" or "receive from". */
  public String getOperation() {
    return operation;
  }

  /** Address, host and process number of the other end. */
  public String getPeer() {
    return peer;
  }

  /** The network interface or RDMA device. */
  public String getDevice() {
    return device;
  }

  /** How many sockets or queue pairs large messages are spread over. */
  public int getStreams() {
    return streams;
  }

  /** How many are done. */
  public long getMessages() {
    return messages;
  }

  /** How many bytes they had. */
  public long getBytes() {
    return bytes;
  }

  /** Requests that are not done. */
  public int getInFlight() {
    return inFlight;
  }

  /** For how long the oldest of them has waited, in milliseconds. */
  public long getOldestMillis() {
    return oldestMillis;
  }

  /** Why the connection has failed, or empty. */
  public String getFailure() {
    return failure;
  }

  @Override
  public String toString() {
    return String.format(
        "%-12s %-40s %-10s %7d %12d %16d %9d %10d  %s",
        operation, peer, device, streams, messages, bytes, inFlight, oldestMillis, failure);
  }

  /** The line above rows. */
  static String heading() {
    return String.format(
        "%-12s %-40s %-10s %7s %12s %16s %9s %10s  %s",
        "", "peer", "device", "streams", "messages", "bytes", "in flight", "oldest ms", "failure");
  }
}

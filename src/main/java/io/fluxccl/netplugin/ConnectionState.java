// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin;

import io.fluxccl.Text;

/** A row of the table of connections: a snapshot of one end of a connection. Immutable. */
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
   * Creates a row.
   *
   * @param operation "send to" or "receive from"
   * @param peer address, host and process number of the other end
   * @param device the network interface or RDMA device
   * @param streams the number of sockets or queue pairs that large messages are spread over
   * @param traffic the messages and bytes that are done
   * @param inFlight requests that are not done
   * @param oldestMillis how long the oldest of these requests has waited, in milliseconds
   * @param failure the message of the connection's failure, or empty
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

  /** Returns "send to" or "receive from". */
  public String getOperation() {
    return operation;
  }

  /** Returns the address, host and process number of the other end. */
  public String getPeer() {
    return peer;
  }

  /** Returns the network interface or RDMA device. */
  public String getDevice() {
    return device;
  }

  /** Returns the number of sockets or queue pairs that large messages are spread over. */
  public int getStreams() {
    return streams;
  }

  /** Returns the number of messages that are done. */
  public long getMessages() {
    return messages;
  }

  /** Returns the number of bytes of the messages that are done. */
  public long getBytes() {
    return bytes;
  }

  /** Returns the number of requests that are not done. */
  public int getInFlight() {
    return inFlight;
  }

  /** Returns how long the oldest request in flight has waited, in milliseconds. */
  public long getOldestMillis() {
    return oldestMillis;
  }

  /** Returns the message of the connection's failure, or empty. */
  public String getFailure() {
    return failure;
  }

  @Override
  public String toString() {
    return Text.of(
        "%-12s %-40s %-10s %7d %12d %16d %9d %10d  %s",
        operation, peer, device, streams, messages, bytes, inFlight, oldestMillis, failure);
  }

  /** Returns the heading of the table's columns. */
  static String heading() {
    return Text.of(
        "%-12s %-40s %-10s %7s %12s %16s %9s %10s  %s",
        "", "peer", "device", "streams", "messages", "bytes", "in flight", "oldest ms", "failure");
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.testkit;

import io.fluxccl.Experimental;
import io.fluxccl.InvalidUsage;
import io.fluxccl.Text;

/**
 * One fault of a {@link FaultPlan}: what happens, and to which message. The position is a count,
 * not a time, so that it is the same in every run. It counts the messages, or their bytes, that one
 * rank has sent to another over one connection, including the links that replace a lost one.
 * Messages that open a link, and those that only confirm others, don't count and have no faults.
 *
 * @param kind what happens
 * @param from the rank that sends
 * @param to the rank that receives
 * @param connection which of the connections between the two, in the order in which they were made,
 *     from 0
 * @param unit what {@code at} counts
 * @param at how many of them were sent before the fault happens
 * @param detail selects the byte of a corrupt message, or the length of a delay; of any value
 */
@Experimental
public record Fault(
    FaultKind kind, int from, int to, int connection, Unit unit, long at, int detail) {
  /** The unit of the position of a fault. */
  public enum Unit {
    /** Messages. */
    MESSAGES,
    /** Bytes of messages. */
    BYTES
  }

  /** Refuses negative numbers, and a fault between a rank and itself. */
  public Fault {
    if (from < 0 || to < 0 || from == to || connection < 0 || at < 0) {
      throw InvalidUsage.of(
          "fault from=%s, to=%s, connection=%s, at=%s; give two ranks, and 0 or more",
          from, to, connection, at);
    }
  }

  /** Returns a fault of the message with that number, from 0, on the first connection. */
  public static Fault atMessage(FaultKind kind, int from, int to, long number) {
    return new Fault(kind, from, to, 0, Unit.MESSAGES, number, 0);
  }

  /** Returns a fault of the message that holds that byte, from 0, of the first connection. */
  public static Fault atByte(FaultKind kind, int from, int to, long number) {
    return new Fault(kind, from, to, 0, Unit.BYTES, number, 0);
  }

  /** Returns whether it is a fault of a connection from one rank to another. */
  boolean isOf(int sender, int receiver, int number) {
    return from == sender && to == receiver && connection == number;
  }

  /**
   * Returns whether it happens to a message of {@code length} bytes, after the messages and bytes
   * sent before.
   */
  boolean isDue(long messages, long bytes, long length) {
    return unit == Unit.MESSAGES ? messages >= at : bytes + length > at;
  }

  @Override
  public String toString() {
    return Text.of(
        "%s rank %d to %d, connection %d, at %s %d",
        kind, from, to, connection, unit == Unit.MESSAGES ? "message" : "byte", at);
  }
}

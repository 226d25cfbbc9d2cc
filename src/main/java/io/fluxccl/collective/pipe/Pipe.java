// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.pipe;

import io.fluxccl.device.host.HostMemory;

/**
 * Messages to one peer and from it, each direction in order, through rings of slots. The sender
 * claims a slot, fills it and publishes it. The receiver takes messages in the same order and
 * releases their slots, which the sender may then claim again.
 *
 * <p>Used by one kernel thread at a time. Counts continue from launch to launch, so that a recorded
 * call may run again.
 */
public interface Pipe {
  /**
   * Begins a call: messages carry its signature. A message with another signature is not taken; it
   * is reported, and {@link #take} waits until the communicator is aborted.
   *
   * @param sent signature of the messages to the peer
   * @param expected signature of the messages from the peer
   */
  void begin(int sent, int expected);

  /** Waits for a free slot and returns its address; 0 if the communicator was aborted. */
  long claim();

  /** Sends the claimed slot's first bytes, 0 or more. */
  void publish(long bytes);

  /** Waits for the next message and returns its address; 0 if the communicator was aborted. */
  long take();

  /** Frees the slot of the message that was taken. */
  void release();

  /** Sends a copy of bytes in a slot; returns false if the communicator was aborted. */
  default boolean send(long from, long bytes) {
    long slot = claim();
    if (slot == 0) {
      return false;
    }
    HostMemory.copy(slot, from, bytes);
    publish(bytes);
    return true;
  }

  /** Copies the next message's bytes; returns false if the communicator was aborted. */
  default boolean receive(long to, long bytes) {
    long slot = take();
    if (slot == 0) {
      return false;
    }
    HostMemory.copy(to, slot, bytes);
    release();
    return true;
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.function.BiConsumer;

/**
 * Unexpected messages, which arrived before a receiver, and receivers that wait for messages. Only
 * on the event loop.
 */
final class Mailboxes {
  private static final int REMEMBERED_KEYS = 4096;

  private final Map<StreamKey, Mailbox> boxes = new HashMap<>();

  /** The bytes of messages that wait for a receiver. */
  final WaitingBytes unreceived;

  // Keys of operations that ended early: messages that still arrive for them are dropped.
  private final Map<StreamKey, Boolean> abandoned =
      new LinkedHashMap<>() {
        private static final long serialVersionUID = 1L;

        @Override
        protected boolean removeEldestEntry(Map.Entry<StreamKey, Boolean> eldest) {
          return size() > REMEMBERED_KEYS;
        }
      };

  Mailboxes(int nRanks) {
    unreceived = new WaitingBytes(nRanks, WaitingBytes.LIMIT);
  }

  /** Completes the first receiver with a message, or keeps the message. */
  void deliver(StreamKey key, byte[] message) {
    if (!abandoned.containsKey(key) && !offer(key, message)) {
      box(key).messages.addLast(message);
      unreceived.add(key.peer(), WaitingBytes.of(message));
    }
  }

  /**
   * Completes a receiver with the next message, now or when it arrives. A receiver that is complete
   * before, for example because it was cancelled, takes no message.
   */
  void receive(StreamKey key, CompletableFuture<byte[]> receiver) {
    byte[] message = poll(key);
    if (message == null) {
      box(key).receivers.add(receiver);
    } else if (!receiver.complete(message)) {
      box(key).messages.addFirst(message);
      unreceived.add(key.peer(), WaitingBytes.of(message));
    }
  }

  /** Returns whether a message has arrived and waits for a receiver. */
  boolean has(StreamKey key) {
    Mailbox box = boxes.get(key);
    return box != null && !box.messages.isEmpty();
  }

  /** Takes the next message that has arrived, or returns null. */
  byte[] poll(StreamKey key) {
    Mailbox box = boxes.get(key);
    byte[] message = box == null ? null : box.messages.poll();
    if (message != null) {
      unreceived.add(key.peer(), -WaitingBytes.of(message));
      removeIfEmpty(key, box);
    }
    return message;
  }

  /** Removes a receiver. */
  void forget(StreamKey key, CompletableFuture<byte[]> receiver) {
    Mailbox box = boxes.get(key);
    if (box != null && box.receivers.remove(receiver)) {
      removeIfEmpty(key, box);
    }
  }

  /** Drops the receivers of a key and all its messages, including those that arrive later. */
  void abandon(StreamKey key) {
    Mailbox box = boxes.remove(key);
    if (box != null) {
      box.messages.forEach(each -> unreceived.add(key.peer(), -WaitingBytes.of(each)));
    }
    abandoned.put(key, true);
  }

  /** Removes a group's messages and hands them to a consumer, those of one key in order. */
  void take(long group, BiConsumer<StreamKey, byte[]> to) {
    List<StreamKey> keys = boxes.keySet().stream().filter(key -> key.group() == group).toList();
    for (StreamKey key : keys) {
      for (byte[] each = poll(key); each != null; each = poll(key)) {
        to.accept(key, each);
      }
    }
  }

  /** Removes and returns all receivers that wait for a rank. */
  List<CompletableFuture<byte[]>> removeReceivers(int peer) {
    List<CompletableFuture<byte[]>> receivers = new ArrayList<>();
    boxes
        .entrySet()
        .removeIf(
            entry ->
                entry.getKey().peer() == peer
                    && receivers.addAll(entry.getValue().receivers)
                    && entry.getValue().messages.isEmpty());
    return receivers;
  }

  void clear() {
    boxes.clear();
    abandoned.clear();
    unreceived.clear();
  }

  private boolean offer(StreamKey key, byte[] message) {
    for (Mailbox box = boxes.get(key); box != null; box = boxes.get(key)) {
      CompletableFuture<byte[]> receiver = box.receivers.poll();
      if (receiver == null) {
        return false;
      }
      // Before the call: a receiver may wait for the next message at once.
      removeIfEmpty(key, box);
      if (receiver.complete(message)) {
        return true;
      }
    }
    return false;
  }

  private Mailbox box(StreamKey key) {
    return boxes.computeIfAbsent(key, unused -> new Mailbox());
  }

  private void removeIfEmpty(StreamKey key, Mailbox box) {
    if (box.messages.isEmpty() && box.receivers.isEmpty()) {
      boxes.remove(key, box);
    }
  }

  // At least one of the queues is empty: a message for which a receiver waits is delivered at once.
  private static final class Mailbox {
    final ArrayDeque<byte[]> messages = new ArrayDeque<>();
    final ArrayDeque<CompletableFuture<byte[]>> receivers = new ArrayDeque<>();
  }

  /** The bytes of messages that wait, by rank, and their limit. Only on the event loop. */
  static final class WaitingBytes {
    /** Half of the heap of this JVM. */
    static final long LIMIT = Runtime.getRuntime().maxMemory() / 2;

    /** Heap that a message takes besides its bytes, with a key of its own. */
    static final int OVERHEAD = 256;

    private final long[] byRank;
    private final long limit;
    private long all;

    WaitingBytes(int nRanks, long limit) {
      this.byRank = new long[nRanks];
      this.limit = limit;
    }

    /** Returns whether a message may wait too. The first one always may. */
    boolean hasRoom(byte[] message) {
      return all == 0 || all + of(message) <= limit;
    }

    /** Counts bytes of a rank; negative for bytes that no longer wait. */
    void add(int rank, long bytes) {
      byRank[rank] += bytes;
      all += bytes;
    }

    void clear() {
      Arrays.fill(byRank, 0);
      all = 0;
    }

    /** Returns the rank with most bytes. */
    int fullest() {
      int fullest = 0;
      for (int rank = 1; rank < byRank.length; rank++) {
        fullest = byRank[rank] > byRank[fullest] ? rank : fullest;
      }
      return fullest;
    }

    /** Returns the bytes of a message. */
    static long of(byte[] message) {
      return (long) message.length + OVERHEAD;
    }
  }

  /**
   * Messages of one key arrive in order; keys are independent of each other.
   *
   * @param group the id of a sub-group while the job's bootstrap carries its message; otherwise 0
   * @param peer the rank that sends
   * @param space the kind of operation that the message belongs to
   * @param channel the tag, or the hash of the members, by {@code space}; otherwise 0
   * @param sequence the number of the collective operation; 0 for {@link Space#TAGGED}
   */
  record StreamKey(long group, int peer, Space space, long channel, int sequence) {
    /** The group of messages that belong to all ranks. */
    static final long ALL = 0;

    StreamKey(int peer, Space space, long channel, int sequence) {
      this(ALL, peer, space, channel, sequence);
    }

    StreamKey from(int otherPeer) {
      return in(group, otherPeer);
    }

    /**
     * Returns this key with another group and peer, for a message that passes between groups or
     * ranks.
     */
    StreamKey in(long otherGroup, int otherPeer) {
      return new StreamKey(otherGroup, otherPeer, space, channel, sequence);
    }

    enum Space {
      TAGGED,
      GATHER,
      GROUP,
      BROADCAST,
      EXCHANGE,
      /** The gather by which ranks form sub-groups. */
      SPLIT,
      /** The last message of a rank to the others of its sub-group. */
      LEFT
    }
  }
}

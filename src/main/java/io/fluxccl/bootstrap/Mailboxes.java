package io.fluxccl.bootstrap;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Messages that came before they were asked for, and those that were asked for before they came.
 * Only on the event loop.
 */
final class Mailboxes {
  private static final int REMEMBERED_KEYS = 4096;

  private final Map<StreamKey, Mailbox> boxes = new HashMap<>();
  private final long[] unreceivedBytes;

  // Operations that ended early: what still comes for them is dropped instead of kept for ever.
  private final Map<StreamKey, Boolean> abandoned =
      new LinkedHashMap<>() {
        private static final long serialVersionUID = 1L;

        @Override
        protected boolean removeEldestEntry(Map.Entry<StreamKey, Boolean> eldest) {
          return size() > REMEMBERED_KEYS;
        }
      };

  Mailboxes(int nRanks) {
    unreceivedBytes = new long[nRanks];
  }

  /** A message has come. */
  void deliver(StreamKey key, Message message) {
    if (!abandoned.containsKey(key) && !offer(key, message)) {
      box(key).messages.addLast(message);
      unreceivedBytes[key.peer()] += message.bytes().length;
    }
  }

  /** Waits for the next message, which may be here already. */
  void receive(StreamKey key, Receiver receiver) {
    Message message = poll(key);
    if (message == null) {
      box(key).receivers.add(receiver);
    } else if (!receiver.accept(message) && !offer(key, message)) {
      box(key).messages.addFirst(message);
      unreceivedBytes[key.peer()] += message.bytes().length;
    }
  }

  /** Whether a message is here. */
  boolean has(StreamKey key) {
    Mailbox box = boxes.get(key);
    return box != null && !box.messages.isEmpty();
  }

  /** The next message that has come, or null. */
  Message poll(StreamKey key) {
    Mailbox box = boxes.get(key);
    Message message = box == null ? null : box.messages.poll();
    if (message != null) {
      unreceivedBytes[key.peer()] -= message.bytes().length;
      removeIfEmpty(key, box);
    }
    return message;
  }

  /** Waits no longer. */
  void forget(StreamKey key, Receiver receiver) {
    Mailbox box = boxes.get(key);
    if (box != null && box.receivers.remove(receiver)) {
      removeIfEmpty(key, box);
    }
  }

  /** Drops what has come and what will come for a key. */
  void abandon(StreamKey key) {
    Mailbox box = boxes.remove(key);
    if (box != null) {
      box.messages.forEach(each -> unreceivedBytes[key.peer()] -= each.bytes().length);
    }
    abandoned.put(key, true);
  }

  /** Takes out all who wait for a rank. */
  List<Receiver> removeReceivers(int peer) {
    List<Receiver> receivers = new ArrayList<>();
    boxes
        .entrySet()
        .removeIf(
            entry ->
                entry.getKey().peer() == peer
                    && receivers.addAll(entry.getValue().receivers)
                    && entry.getValue().messages.isEmpty());
    return receivers;
  }

  /** How many bytes of a rank lie here unreceived. */
  long unreceivedBytes(int peer) {
    return unreceivedBytes[peer];
  }

  void clear() {
    boxes.clear();
    abandoned.clear();
    Arrays.fill(unreceivedBytes, 0);
  }

  private boolean offer(StreamKey key, Message message) {
    for (Mailbox box = boxes.get(key); box != null; box = boxes.get(key)) {
      Receiver receiver = box.receivers.poll();
      if (receiver == null) {
        return false;
      }
      // Before the call: a receiver may wait for the next message at once.
      removeIfEmpty(key, box);
      if (receiver.accept(message)) {
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

  // Never both at once: a message that somebody waits for does not lie here.
  private static final class Mailbox {
    final ArrayDeque<Message> messages = new ArrayDeque<>();
    final ArrayDeque<Receiver> receivers = new ArrayDeque<>();
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.proxy;

import io.fluxccl.Experimental;
import io.fluxccl.InvalidUsage;
import io.fluxccl.Text;

/**
 * Packs and unpacks a channel's request to the proxy: the source and target ranges of a write, and
 * whether to signal and to flush. Its static functions work on the two words of a trigger and
 * allocate nothing.
 *
 * <pre>
 *   first word    [0-31] size          [32-63] source offset
 *   second word   [0-31] destination offset
 *                 [32-40] source memory id   [41-49] destination memory id
 *                 [50-52] type               [53-62] channel id    [63] the ring's commit bit
 * </pre>
 *
 * Sizes and offsets are bytes.
 */
public final class ChannelTrigger {
  /** The type bit of a request to write {@code size} bytes to the peer. */
  public static final int DATA = 1;

  /** The type bit of a request to signal the peer's semaphore after the data. */
  public static final int SIGNAL = 2;

  /** The type bit of a request to notify the device once all earlier data has arrived. */
  public static final int FLUSH = 4;

  /** The maximum number of memories; their ids are below this number. */
  public static final int MAX_MEMORIES = 512;

  /** The maximum number of channels; their ids are below this number. */
  public static final int MAX_IDS = 1024;

  /** The exclusive limit of sizes and offsets in bytes: 4 GiB. */
  public static final long MAX_BYTES = 1L << 32;

  /** An argument of a kernel's request that does not fit into a trigger. */
  @Experimental
  public enum Argument {
    /** No argument: the trigger was pushed with type 0. */
    NONE(""),
    /** The number of bytes. */
    SIZE("size"),
    /** The offset in the source memory. */
    SOURCE_OFFSET("source offset"),
    /** The offset in the destination memory. */
    DESTINATION_OFFSET("destination offset"),
    /** The id of the source memory. */
    SOURCE_MEMORY("source memory"),
    /** The id of the destination memory. */
    DESTINATION_MEMORY("destination memory");

    private final String text;

    Argument(String text) {
      this.text = text;
    }
  }

  private static final Argument[] ARGUMENTS = Argument.values();
  private static final int ALL_TYPES = DATA | SIGNAL | FLUSH;
  private static final int SOURCE_MEMORY_SHIFT = 32;
  private static final int DESTINATION_MEMORY_SHIFT = 41;
  private static final int TYPE_SHIFT = 50;
  private static final int ID_SHIFT = 53;

  private ChannelTrigger() {}

  /**
   * Returns the packed first word.
   *
   * @param size bytes, 0 to 4 GiB - 1
   * @param sourceOffset bytes from the start of the source memory, 0 to 4 GiB - 1
   * @return the word
   * @throws InvalidUsage if an argument is out of range
   */
  public static long first(long size, long sourceOffset) {
    if ((size | sourceOffset) >>> 32 != 0) {
      throw outOfRange(size, sourceOffset);
    }
    return sourceOffset << 32 | size;
  }

  /**
   * Returns the packed second word.
   *
   * @param destinationOffset bytes from the start of the destination memory, 0 to 4 GiB - 1
   * @param sourceMemory the id of the source memory, 0 to 511
   * @param destinationMemory the id of the destination memory, 0 to 511
   * @param type one or more of {@link #DATA}, {@link #SIGNAL}, {@link #FLUSH}, combined by OR
   * @param id the id of the channel, 0 to 1023
   * @return the word, with the commit bit clear
   * @throws InvalidUsage if an argument is out of range
   */
  public static long second(
      long destinationOffset, int sourceMemory, int destinationMemory, int type, int id) {
    if (destinationOffset >>> 32 != 0
        || ((sourceMemory | destinationMemory) & -MAX_MEMORIES) != 0
        || type < 1
        || type > ALL_TYPES
        || (id & -MAX_IDS) != 0) {
      throw outOfRange(destinationOffset, sourceMemory, destinationMemory, type, id);
    }
    return destinationOffset
        | (long) sourceMemory << SOURCE_MEMORY_SHIFT
        | (long) destinationMemory << DESTINATION_MEMORY_SHIFT
        | (long) type << TYPE_SHIFT
        | (long) id << ID_SHIFT;
  }

  /**
   * Returns the second word of a trigger of type 0, which reports an argument that does not fit;
   * the first word is the argument. The proxy fails the channel of such a trigger.
   *
   * @param argument the argument that does not fit
   * @param id the id of the channel
   * @return the word, with the commit bit clear
   */
  @Experimental
  public static long refused(Argument argument, int id) {
    return argument.ordinal() | (long) id << ID_SHIFT;
  }

  /** Returns the error that a trigger of type 0 reports. */
  @Experimental
  public static InvalidUsage refusal(long first, long second) {
    int index = (int) Math.min(destinationOffset(second), ARGUMENTS.length);
    if (index < 1 || index == ARGUMENTS.length) {
      return InvalidUsage.of(
          "channel %s: a kernel pushed a trigger of type 0 (%s); allowed are types 1 to %s",
          id(second), toString(first, second), ALL_TYPES);
    }
    return InvalidUsage.of(
        "channel %s: a kernel requested a put with %s=%s; allowed are sizes and offsets of 0 to %s"
            + " bytes and memories 0 to %s: split the transfer, or register the memory in parts",
        id(second),
        ARGUMENTS[index].text,
        Long.toUnsignedString(first),
        MAX_BYTES - 1,
        MAX_MEMORIES - 1);
  }

  /** Returns the number of bytes to write. */
  public static long size(long first) {
    return first & (MAX_BYTES - 1);
  }

  /** Returns the offset in bytes in the source memory. */
  public static long sourceOffset(long first) {
    return first >>> 32;
  }

  /** Returns the offset in bytes in the destination memory. */
  public static long destinationOffset(long second) {
    return second & (MAX_BYTES - 1);
  }

  /** Returns the id of the source memory. */
  public static int sourceMemory(long second) {
    return (int) (second >>> SOURCE_MEMORY_SHIFT) & (MAX_MEMORIES - 1);
  }

  /** Returns the id of the destination memory. */
  public static int destinationMemory(long second) {
    return (int) (second >>> DESTINATION_MEMORY_SHIFT) & (MAX_MEMORIES - 1);
  }

  /**
   * Returns the type, a combination of {@link #DATA}, {@link #SIGNAL} and {@link #FLUSH}; 0 for a
   * trigger that reports an argument that does not fit, see {@link #refused}.
   */
  public static int type(long second) {
    return (int) (second >>> TYPE_SHIFT) & ALL_TYPES;
  }

  /** Returns the id of the channel. */
  public static int id(long second) {
    return (int) (second >>> ID_SHIFT) & (MAX_IDS - 1);
  }

  /** Returns the trigger as text, for error messages. */
  public static String toString(long first, long second) {
    return Text.of(
        "type=%s channel=%s size=%s source=%s+%s destination=%s+%s",
        typeName(type(second)),
        id(second),
        size(first),
        sourceMemory(second),
        sourceOffset(first),
        destinationMemory(second),
        destinationOffset(second));
  }

  private static String typeName(int type) {
    StringBuilder name = new StringBuilder();
    append(name, (type & DATA) != 0, "DATA");
    append(name, (type & SIGNAL) != 0, "SIGNAL");
    append(name, (type & FLUSH) != 0, "FLUSH");
    return name.length() == 0 ? "NONE" : name.toString();
  }

  private static void append(StringBuilder name, boolean present, String word) {
    if (present) {
      name.append(name.length() == 0 ? "" : "|").append(word);
    }
  }

  private static InvalidUsage outOfRange(long size, long sourceOffset) {
    return InvalidUsage.of(
        "trigger size=%s sourceOffset=%s; both must be 0 to %s bytes: split the"
            + " transfer, or register the memory in parts",
        size, sourceOffset, MAX_BYTES - 1);
  }

  private static InvalidUsage outOfRange(
      long destinationOffset, int sourceMemory, int destinationMemory, int type, int id) {
    return InvalidUsage.of(
        "trigger destinationOffset=%s sourceMemory=%s destinationMemory=%s type=%s"
            + " id=%s; allowed are offsets 0 to %s, memories 0 to %s, types 1 to %s, ids 0"
            + " to %s",
        destinationOffset,
        sourceMemory,
        destinationMemory,
        type,
        id,
        MAX_BYTES - 1,
        MAX_MEMORIES - 1,
        ALL_TYPES,
        MAX_IDS - 1);
  }
}

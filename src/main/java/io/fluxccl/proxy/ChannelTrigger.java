package io.fluxccl.proxy;

import io.fluxccl.InvalidUsage;

/**
 * The request of a channel to the proxy, packed into a trigger: which bytes of which memory go
 * where, and whether to signal and to flush. Static functions on the two words; nothing is
 * allocated.
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
  /** Type: write {@code size} bytes to the peer. */
  public static final int DATA = 1;

  /** Type: raise the peer's semaphore, after the data. */
  public static final int SIGNAL = 2;

  /** Type: notify the device once everything before has arrived. */
  public static final int FLUSH = 4;

  /** The number of memories; their ids are 0 to this, exclusive. */
  public static final int MAX_MEMORIES = 512;

  /** The number of channels; their ids are 0 to this, exclusive. */
  public static final int MAX_IDS = 1024;

  /** Sizes and offsets are below this: 4 GiB. */
  public static final long MAX_BYTES = 1L << 32;

  private static final int ALL_TYPES = DATA | SIGNAL | FLUSH;
  private static final int SOURCE_MEMORY_SHIFT = 32;
  private static final int DESTINATION_MEMORY_SHIFT = 41;
  private static final int TYPE_SHIFT = 50;
  private static final int ID_SHIFT = 53;

  private ChannelTrigger() {}

  /**
   * Packs the first word.
   *
   * @param size bytes, 0 to 4 GiB - 1
   * @param sourceOffset bytes from the start of the source memory, 0 to 4 GiB - 1
   * @return the word
   * @throws InvalidUsage if one is out of range
   */
  public static long first(long size, long sourceOffset) {
    if ((size | sourceOffset) >>> 32 != 0) {
      throw outOfRange(size, sourceOffset);
    }
    return sourceOffset << 32 | size;
  }

  /**
   * Packs the second word.
   *
   * @param destinationOffset bytes from the start of the destination memory, 0 to 4 GiB - 1
   * @param sourceMemory id, 0 to 511
   * @param destinationMemory id, 0 to 511
   * @param type one or more of {@link #DATA}, {@link #SIGNAL}, {@link #FLUSH}, combined by OR
   * @param id of the channel, 0 to 1023
   * @return the word, with the commit bit clear
   * @throws InvalidUsage if one is out of range
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

  /** Bytes to move. */
  public static long size(long first) {
    return first & (MAX_BYTES - 1);
  }

  /** Bytes from the start of the source memory. */
  public static long sourceOffset(long first) {
    return first >>> 32;
  }

  /** Bytes from the start of the destination memory. */
  public static long destinationOffset(long second) {
    return second & (MAX_BYTES - 1);
  }

  /** The id of the memory to read. */
  public static int sourceMemory(long second) {
    return (int) (second >>> SOURCE_MEMORY_SHIFT) & (MAX_MEMORIES - 1);
  }

  /** The id of the memory to write. */
  public static int destinationMemory(long second) {
    return (int) (second >>> DESTINATION_MEMORY_SHIFT) & (MAX_MEMORIES - 1);
  }

  /** What to do: {@link #DATA}, {@link #SIGNAL} and {@link #FLUSH}; 0 in a malformed trigger. */
  public static int type(long second) {
    return (int) (second >>> TYPE_SHIFT) & ALL_TYPES;
  }

  /** The id of the channel. */
  public static int id(long second) {
    return (int) (second >>> ID_SHIFT) & (MAX_IDS - 1);
  }

  /** The trigger in words, for messages. */
  public static String toString(long first, long second) {
    return String.format(
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

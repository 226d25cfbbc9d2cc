package io.fluxccl.netplugin;

/** Chooses where the body of a message goes, once the message's head has arrived. */
public interface BodyPlace {
  /** There is no place yet. */
  long NOT_YET = 0;

  /**
   * Returns where the body goes: an address of host memory with room for it, which stays valid
   * until the receive is done. Called by the thread that tests the receive; asked again by a later
   * test after {@link #NOT_YET}, and nothing behind the head is read meanwhile.
   *
   * @param head the address of the head, in the memory of the receive
   * @param headSize bytes of the head
   * @param bodySize bytes of the body, 1 or more
   * @return the address, or {@link #NOT_YET}
   */
  long addressOf(long head, long headSize, long bodySize);
}

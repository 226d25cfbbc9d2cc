package io.fluxccl.netplugin;

/**
 * A send, receive or flush in flight. Belongs to its comm, which uses the object again for another
 * operation after {@link #test} said true and the next operation was posted.
 */
public interface NetRequest {
  /**
   * Whether it is done; makes progress. Not to be called again once it was true.
   *
   * @return true when done
   * @throws io.fluxccl.InvalidUsage if more was sent than there was room for
   * @throws io.fluxccl.FluxCclException if it failed; it is over then
   */
  boolean test();

  /**
   * How many bytes were sent or received, once {@link #test} said true and until the next operation
   * of the comm.
   *
   * @param index which of a group, 0 otherwise
   * @return bytes
   */
  long size(int index);
}

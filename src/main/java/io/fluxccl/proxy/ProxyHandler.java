package io.fluxccl.proxy;

/** What a {@link Proxy} does with a trigger. */
@FunctionalInterface
public interface ProxyHandler {
  /**
   * Handles one trigger. Called from the proxy thread, in the order of positions; must not block
   * and should not allocate. What it throws goes to the {@link ProxyErrorHandler}: the trigger
   * counts as handled and the loop goes on.
   *
   * @param first word
   * @param second word, without the ring's commit bit
   * @param position of the trigger in the ring, counted from 0
   * @return how to go on; not null
   */
  ProxyHandlerResult handle(long first, long second, long position);
}

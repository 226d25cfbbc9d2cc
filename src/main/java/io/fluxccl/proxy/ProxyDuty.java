package io.fluxccl.proxy;

/**
 * Work that a {@link Proxy} does between triggers, such as looking whether a transport has drained,
 * so that no handler has to wait for it.
 */
@FunctionalInterface
public interface ProxyDuty {
  /** No duty. */
  ProxyDuty NONE = () -> 0;

  /**
   * Does what can be done now. Called from the proxy thread once a duty cycle; must not block and
   * should not allocate. What it throws goes to {@link ProxyErrorHandler#onLoopError}.
   *
   * @return how many things were done; 0 lets the proxy idle
   */
  int doWork();

  /**
   * Whether something has begun that only a later {@link #doWork} finishes. Asked when the proxy
   * ends, which then goes on with the duty, for as long as {@link ProxyOptions#stopTimeout()} lets
   * it.
   *
   * @return false if nothing is lost when nobody calls {@link #doWork} again
   */
  default boolean isPending() {
    return false;
  }

  /**
   * Gives up what is pending, because the proxy has ended and nobody calls {@link #doWork} until it
   * is started again. Called from the proxy thread, or from who steps by hand.
   */
  default void giveUp() {}
}

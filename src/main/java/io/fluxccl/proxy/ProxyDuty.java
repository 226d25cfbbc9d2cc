package io.fluxccl.proxy;

/**
 * Work that a {@link Proxy} does between triggers, such as checking whether a transport has
 * drained, so that no handler has to wait for it.
 */
@FunctionalInterface
public interface ProxyDuty {
  /** No duty. */
  ProxyDuty NONE = () -> 0;

  /**
   * Does what can be done now. Called from the proxy thread once a duty cycle; must not block and
   * should not allocate. What it throws goes to {@link ProxyErrorHandler#onLoopError}.
   *
   * @return how much was done; with 0 the proxy may idle
   */
  int doWork();

  /**
   * Whether something has begun that only a later {@link #doWork} finishes. Asked when the proxy
   * ends, which then goes on with the duty, for as long as {@link ProxyOptions#stopTimeout()} lets
   * it.
   *
   * @return false if nothing is lost without another call of {@link #doWork} again
   */
  default boolean isPending() {
    return false;
  }

  /**
   * Gives up what is pending, because the proxy has ended and does not call {@link #doWork} until
   * it is started again. Called from the proxy thread, or from the thread that steps by hand.
   */
  default void giveUp() {}
}

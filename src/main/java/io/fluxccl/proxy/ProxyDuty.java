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
}

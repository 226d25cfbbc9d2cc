package io.fluxccl.proxy;

/**
 * Reports errors to a handler. A handler that fails itself neither ends the proxy's loop nor hides
 * the error that it was given: both are logged.
 *
 * @param handler of the proxy's options
 */
record ErrorReports(ProxyErrorHandler handler) {
  /** Reports that a trigger failed, or was not handled. */
  void trigger(long position, long first, long second, Throwable error) {
    try {
      handler.onTriggerError(position, first, second, error);
    } catch (Throwable inHandler) {
      inHandler.addSuppressed(error);
      ProxyErrorHandler.LOGGING.onTriggerError(position, first, second, inHandler);
    }
  }

  /** Reports an error that belongs to no trigger. */
  void loop(Throwable error) {
    try {
      handler.onLoopError(error);
    } catch (Throwable inHandler) {
      inHandler.addSuppressed(error);
      ProxyErrorHandler.LOGGING.onLoopError(inHandler);
    }
  }
}

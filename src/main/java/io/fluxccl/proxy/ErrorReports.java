// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.proxy;

/**
 * Reports errors to a handler. If the handler throws an exception, both errors are logged and the
 * proxy's loop continues.
 *
 * @param handler the error handler of the proxy's options
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

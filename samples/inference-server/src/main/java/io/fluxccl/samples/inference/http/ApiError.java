// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.http;

import com.fasterxml.jackson.databind.node.ObjectNode;
import io.fluxccl.samples.inference.engine.Refused;
import java.time.Duration;
import java.util.Locale;
import java.util.concurrent.TimeoutException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** An error that a client gets instead of an answer, in OpenAI's form. */
final class ApiError extends RuntimeException {
  private static final long serialVersionUID = 1;
  private static final Logger LOG = LoggerFactory.getLogger(ApiError.class);

  /** The status, unless an answer has begun. */
  final int status;

  private final String param;
  private final String code;
  private final transient Duration retryAfter;

  private ApiError(int status, String message, String param, String code, Duration retryAfter) {
    super(message, null, false, false);
    this.status = status;
    this.param = param;
    this.code = code;
    this.retryAfter = retryAfter;
  }

  /** An error of the client. */
  static ApiError client(int status, String message, String param, String code) {
    return new ApiError(status, message, param, code, Duration.ZERO);
  }

  /** An error of a server that may have room soon. */
  static ApiError unavailable(String message) {
    return new ApiError(503, message, null, "unavailable", Duration.ofSeconds(1));
  }

  /** A parameter that is out of range, or of a wrong type. */
  static ApiError invalid(String param, String message) {
    return client(400, "'" + param + "' " + message, param, "invalid_value");
  }

  /** Returns the error that a client gets for any failure. */
  static ApiError of(Throwable failure) {
    if (failure instanceof ApiError known) {
      return known;
    }
    if (failure instanceof Refused refused) {
      return of(refused);
    }
    if (failure instanceof TimeoutException) {
      return of(new Refused(Refused.Reason.DEADLINE, "The deadline has passed", Duration.ZERO));
    }
    LOG.error("A request failed", failure);
    return new ApiError(500, "The server failed", null, "internal_error", Duration.ZERO);
  }

  private static ApiError of(Refused refused) {
    int status =
        switch (refused.reason()) {
          case INVALID -> 400;
          case BUSY -> 429;
          case UNAVAILABLE -> 503;
          case DEADLINE -> 504;
          case FAILED -> 500;
        };
    String code = refused.reason().name().toLowerCase(Locale.ROOT);
    return new ApiError(status, refused.getMessage(), refused.param(), code, refused.retryAfter());
  }

  /** For the header of this name; 0 if to come again does not help. */
  long retryAfterSeconds() {
    return retryAfter.plusMillis(999).toSeconds();
  }

  ObjectNode body() {
    String type = status >= 500 ? "server_error" : "invalid_request_error";
    ObjectNode body = Json.object();
    body.putObject("error")
        .put("message", getMessage())
        .put("type", status == 429 ? "rate_limit_error" : type)
        .put("param", param)
        .put("code", code);
    return body;
  }
}

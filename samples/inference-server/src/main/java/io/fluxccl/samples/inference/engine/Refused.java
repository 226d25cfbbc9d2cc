// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.engine;

import java.time.Duration;

/** A request that was not answered to its end. The message is for the client. */
public final class Refused extends RuntimeException {
  private static final long serialVersionUID = 1;

  private final Reason reason;
  private final transient Duration retryAfter;
  private final String param;

  /** Why. */
  public enum Reason {
    /** Something in the request is out of range. */
    INVALID,
    /** Too many requests wait. */
    BUSY,
    /** Ranks are missing, or the server shuts down. */
    UNAVAILABLE,
    /** Its deadline has passed. */
    DEADLINE,
    /** A rank failed while the request ran. */
    FAILED
  }

  /**
   * Creates one.
   *
   * @param retryAfter when to come again; zero if that does not help
   */
  public Refused(Reason reason, String message, Duration retryAfter) {
    this(reason, message, retryAfter, null);
  }

  private Refused(Reason reason, String message, Duration retryAfter, String param) {
    super(message, null, false, false);
    this.reason = reason;
    this.retryAfter = retryAfter;
    this.param = param;
  }

  /**
   * Creates one for a parameter of the request that is out of range.
   *
   * @param param its name in OpenAI's API
   */
  public static Refused invalid(String param, String message) {
    return new Refused(Reason.INVALID, message, Duration.ZERO, param);
  }

  /** Returns why. */
  public Reason reason() {
    return reason;
  }

  /** Returns the parameter that is out of range; null if there is none. */
  public String param() {
    return param;
  }

  /** Returns when to come again; zero if that does not help. */
  public Duration retryAfter() {
    return retryAfter;
  }
}

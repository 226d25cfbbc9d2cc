// SPDX-License-Identifier: Apache-2.0
package io.fluxccl;

/** The caller requested something impossible: a size, an id, a state or a value out of range. */
public class InvalidUsage extends FluxCclException {
  private static final long serialVersionUID = 1L;

  /**
   * @param message what was given and what is allowed
   */
  public InvalidUsage(String message) {
    this(message, null);
  }

  /**
   * @param message what was given and what is allowed
   * @param cause what refused it, or null
   */
  public InvalidUsage(String message, Throwable cause) {
    super(ErrorCode.INVALID_USAGE, NO_RANK, message, cause);
  }

  /**
   * Creates one with a formatted message.
   *
   * @param format of {@link String#format}
   * @param arguments of the format
   */
  public static InvalidUsage of(String format, Object... arguments) {
    return new InvalidUsage(Text.of(format, arguments));
  }

  /**
   * Refuses null. Allocates nothing if the value is not null.
   *
   * @param value the argument
   * @param where the operation, for the message
   * @param name the parameter's name
   * @param <T> the value's type
   * @return the value
   * @throws InvalidUsage that names both if the value is null
   */
  public static <T> T requireNonNull(T value, Object where, String name) {
    if (value == null) {
      throw of("%s: %s=null; it must not be null", where, name);
    }
    return value;
  }
}

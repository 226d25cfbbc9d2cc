// SPDX-License-Identifier: Apache-2.0
package io.fluxccl;

import java.util.Locale;

/**
 * Formats text with ASCII digits and signs in every locale, because ranks, tools and files exchange
 * it. Stateless.
 */
@Experimental
public final class Text {
  private Text() {}

  /**
   * Returns formatted text in {@link Locale#ROOT}.
   *
   * @param format as {@link String#format(Locale, String, Object...)} takes it
   * @param arguments for its specifiers
   */
  public static String of(String format, Object... arguments) {
    return String.format(Locale.ROOT, format, arguments);
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.engine;

import java.util.Locale;
import java.util.Optional;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * The failure of a step at one of its rows. Only the message of a rank's failure reaches rank 0, so
 * the message names the row's sequence and position, and rank 0 reads them there.
 */
final class RowFailure extends RuntimeException {
  private static final long serialVersionUID = 1;
  private static final Pattern PLACE =
      Pattern.compile("failed at row \\[sequence=(\\d{1,9}), position=(\\d{1,9})]");

  /** The row of a failure. */
  record Place(int sequence, int position) {}

  RowFailure(StepRows.Row row, RuntimeException cause) {
    super(
        String.format(
            Locale.ROOT,
            "failed at row [sequence=%d, position=%d]: %s",
            row.sequence(),
            row.position(),
            cause),
        cause);
  }

  /** Returns the row that a message names. */
  static Optional<Place> place(String message) {
    Matcher place = PLACE.matcher(message == null ? "" : message);
    return place.find()
        ? Optional.of(new Place(Integer.parseInt(place.group(1)), Integer.parseInt(place.group(2))))
        : Optional.empty();
  }
}

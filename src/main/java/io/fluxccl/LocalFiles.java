// SPDX-License-Identifier: Apache-2.0
package io.fluxccl;

import java.nio.file.InvalidPathException;
import java.nio.file.Path;

/** Files of this machine that settings name. Stateless. */
@Experimental
public final class LocalFiles {
  private LocalFiles() {}

  /**
   * Returns the path that a setting names.
   *
   * @param setting an environment variable, option or property, for the message
   * @param value of it
   * @throws InvalidUsage if it is no path in the encoding of this process's locale
   */
  public static Path path(String setting, String value) {
    try {
      return Path.of(value);
    } catch (InvalidPathException e) {
      String encoding = System.getProperty("sun.jnu.encoding", "unknown");
      throw new InvalidUsage(
          encoding.equals("UTF-8")
              ? Text.of("%s=%s is no path: %s", setting, value, e.getReason())
              : Text.of(
                  "%s=%s: file names of this process have the encoding %s, which lacks some of these"
                      + " characters; set LC_ALL=C.UTF-8",
                  setting, value, encoding),
          e);
    }
  }
}

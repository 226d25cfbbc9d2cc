// SPDX-License-Identifier: Apache-2.0
package io.fluxccl;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** The limit of open files and sockets of this process ({@code ulimit -n}). Stateless. */
@Experimental
public final class OpenFiles {
  private static final String TOO_MANY = "too many open files";
  private static final Pattern LINE = Pattern.compile("Max open files\\s+(\\d{1,9})\\s");
  private static final int SHARE = 16;
  private static final int FEWEST_PENDING = 16;
  private static final int MOST_PENDING = 1024;

  /** Read once, while a descriptor is free for reading it; 0 if it is unknown. */
  private static final int LIMIT = read(Path.of("/proc/self/limits"));

  private OpenFiles() {}

  private static int read(Path limits) {
    try {
      Matcher matcher = LINE.matcher(Files.readString(limits));
      return matcher.find() ? Integer.parseInt(matcher.group(1)) : 0;
    } catch (IOException e) {
      return 0;
    }
  }

  /**
   * Returns the largest number of unauthenticated sockets of one listener: a sixteenth of the
   * process's limit, 16 to 1024. Connections from outside the job thus cannot use up all
   * descriptors.
   */
  public static int pendingSockets() {
    return pendingSockets(LIMIT);
  }

  static int pendingSockets(int limit) {
    return limit == 0
        ? MOST_PENDING
        : Math.max(FEWEST_PENDING, Math.min(limit / SHARE, MOST_PENDING));
  }

  /**
   * Returns why something could not be opened.
   *
   * @param cause the exception
   * @param otherwise the reason, unless this process has too many open files
   * @return the limit and what to do if it was reached, or {@code otherwise}
   */
  public static String explain(Throwable cause, String otherwise) {
    return ranOut(cause)
        ? TOO_MANY + " (limit " + (LIMIT == 0 ? "unknown" : LIMIT) + "); raise it with ulimit -n"
        : otherwise;
  }

  /**
   * Returns whether something failed because this process has no descriptor left.
   *
   * @param failure the exception. A NoClassDefFoundError contains no cause: if the class file
   *     exists, the process could not open it
   */
  public static boolean ranOut(Throwable failure) {
    for (Throwable each = failure; each != null; each = each.getCause()) {
      String message = String.valueOf(each.getMessage());
      if (message.contains("Too many open files") || message.contains(TOO_MANY)) {
        return true;
      }
      if (each instanceof NoClassDefFoundError) {
        return OpenFiles.class.getResource("/" + message + ".class") != null;
      }
    }
    return false;
  }
}

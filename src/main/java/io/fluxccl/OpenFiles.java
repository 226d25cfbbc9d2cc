// SPDX-License-Identifier: Apache-2.0
package io.fluxccl;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** How many files and sockets this process may have open ({@code ulimit -n}). Stateless. */
@Experimental
public final class OpenFiles {
  private static final String TOO_MANY = "too many open files";
  private static final Pattern LINE = Pattern.compile("Max open files\\s+(\\d{1,9})\\s");
  private static final int SHARE = 16;
  private static final int FEWEST_PENDING = 16;
  private static final int MOST_PENDING = 1024;

  /** Read once, while there is a descriptor to read it with; 0 if it is not known. */
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
   * Returns how many sockets one listener may have that have not proved to belong to the job: a
   * sixteenth of the process's limit, 16 to 1024. Strangers thus leave descriptors to the job.
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
   * @param cause what the system said
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
   * @param failure what was thrown. A class that can't be loaded does not tell why: if its file is
   *     there, the process could not open it
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

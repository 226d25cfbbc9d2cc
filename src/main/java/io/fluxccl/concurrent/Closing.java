package io.fluxccl.concurrent;

import java.util.Arrays;
import java.util.Collection;
import org.agrona.LangUtil;

/**
 * Closes several things, each of them whatever the others throw: an exception, an error, or the
 * very failure that another one threw.
 */
public final class Closing {
  private Closing() {}

  /**
   * Closes in that order, and then throws what the first that could not be closed threw. What
   * others threw is suppressed in that.
   *
   * @param parts what to close; null for what is not there
   */
  public static void all(AutoCloseable... parts) {
    all(Arrays.asList(parts));
  }

  /**
   * As {@link #all(AutoCloseable...)}.
   *
   * @param parts what to close; null for what is not there
   */
  public static void all(Collection<? extends AutoCloseable> parts) {
    Throwable first = null;
    for (AutoCloseable part : parts) {
      try {
        if (part != null) {
          part.close();
        }
      } catch (Throwable e) {
        first = first == null ? e : first;
        if (e != first) {
          first.addSuppressed(e);
        }
      }
    }
    if (first != null) {
      LangUtil.rethrowUnchecked(first);
    }
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.InvalidUsage;
import io.fluxccl.LocalFiles;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.security.SecureRandom;
import java.util.Base64;
import java.util.Map;
import java.util.Optional;

/**
 * The secret that only the processes of one job know. A process that cannot prove that it knows the
 * secret is refused. Immutable; never printed.
 *
 * @param text the characters, for handing them to a child process; keep them out of logs
 */
public record JobSecret(String text) {
  /** The environment variable that holds the secret: any text of at least 16 characters. */
  public static final String VARIABLE = "FLUXCCL_SECRET";

  /** The environment variable that names a file that holds the secret. */
  public static final String FILE_VARIABLE = "FLUXCCL_SECRET_FILE";

  private static final int MIN_CHARACTERS = 16;
  private static final int MAX_FILE_BYTES = 4096;
  private static final int ROOT = 0;
  private static final int PERMISSIONS = 0777;
  private static final int OWNER_ALL = 0700;
  private static final int GROUP_READ = 0040;

  /** Refuses a secret of less than 16 characters. */
  public JobSecret {
    check(text, "the job secret");
  }

  /** A new secret of 256 random bits. */
  public static JobSecret random() {
    byte[] bytes = new byte[32];
    new SecureRandom().nextBytes(bytes);
    return new JobSecret(Base64.getEncoder().encodeToString(bytes));
  }

  /**
   * A secret that is known already, in whatever notation; every process gives the same characters.
   *
   * @param text at least 16 characters
   * @return the secret
   * @throws InvalidUsage if it is shorter
   */
  public static JobSecret of(String text) {
    return new JobSecret(text);
  }

  /**
   * The secret that this process was started with: {@value #VARIABLE}, or else the content of the
   * file that {@value #FILE_VARIABLE} names, which other users must not be able to read.
   *
   * @return the secret, or empty when neither is set
   * @throws InvalidUsage if it is too short or the file can't be read, or others can read it
   */
  public static Optional<JobSecret> fromEnvironment() {
    return from(System.getenv());
  }

  /** {@link #fromEnvironment()} of another environment: variables by name. */
  public static Optional<JobSecret> from(Map<String, String> environment) {
    String text = environment.get(VARIABLE);
    if (text != null && !text.isEmpty()) {
      return Optional.of(new JobSecret(check(text, VARIABLE)));
    }
    String file = environment.get(FILE_VARIABLE);
    if (file == null || file.isEmpty()) {
      return Optional.empty();
    }
    try {
      Path path = LocalFiles.path(FILE_VARIABLE, file);
      checkPrivate(LocalFiles.requireOwnLinks(path));
      if (Files.size(path) > MAX_FILE_BYTES) {
        throw InvalidUsage.of(
            "%s=%s is over %s bytes; is it the secret?", FILE_VARIABLE, file, MAX_FILE_BYTES);
      }
      String content = Files.readString(path).strip();
      return Optional.of(new JobSecret(check(content, FILE_VARIABLE + "=" + file)));
    } catch (IOException e) {
      throw new InvalidUsage(FILE_VARIABLE + "=" + file + " can't be read: " + e, e);
    }
  }

  /** Refuses a file that other users can read or have written. */
  private static void checkPrivate(Path file) throws IOException {
    int owner = (Integer) Files.getAttribute(file, "unix:uid");
    int mode = (Integer) Files.getAttribute(file, "unix:mode");
    int user = (Integer) Files.getAttribute(Path.of("/proc/self"), "unix:uid");
    if (owner != user && owner != ROOT) {
      throw InvalidUsage.of(
          "%s=%s belongs to user %s, not to this user, %s; run: chown %s %s",
          FILE_VARIABLE, file, owner, user, user, file);
    }
    // Orchestrators mount secrets as files of root that a group of the container can read.
    int allowed = owner == ROOT && user != ROOT ? OWNER_ALL | GROUP_READ : OWNER_ALL;
    if ((mode & PERMISSIONS & ~allowed) != 0) {
      throw InvalidUsage.of(
          "%s=%s has mode %03o, so other users can read or change the secret; run: chmod 600 %s"
              + " (a mounted secret: defaultMode 0400)",
          FILE_VARIABLE, file, mode & PERMISSIONS, file);
    }
  }

  private static String check(String text, String source) {
    if (text.length() < MIN_CHARACTERS) {
      throw InvalidUsage.of(
          "%s has %s characters; give %s or more, for example from `openssl rand -hex 32`",
          source, text.length(), MIN_CHARACTERS);
    }
    return text;
  }

  byte[] bytes() {
    return text.getBytes(StandardCharsets.UTF_8);
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof JobSecret secret && MessageDigest.isEqual(bytes(), secret.bytes());
  }

  @Override
  public int hashCode() {
    return text.hashCode();
  }

  @Override
  public String toString() {
    return "JobSecret(hidden)";
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.FluxCclException;
import io.fluxccl.LocalFiles;
import io.fluxccl.Text;
import io.fluxccl.TransportFailure;
import io.fluxccl.bootstrap.JoinRules.Ballot;
import io.fluxccl.bootstrap.Roster.Nonce;
import io.fluxccl.concurrent.BlockingTasks;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.SecureDirectoryStream;
import java.nio.file.attribute.BasicFileAttributeView;
import java.nio.file.attribute.FileAttribute;
import java.time.Duration;
import java.time.Instant;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.function.Supplier;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The ballots of this host, in files that its processes share. Each change of a ballot is a new
 * file, whose name is the nonce of the base and the next number; the one with the highest number is
 * valid. There are no locks, because a suspended process would keep them. Instead, no name becomes
 * free: of two processes that create a file with the same number, one fails and tries again. So
 * superseded files are emptied, not deleted. Without a folder, or if it can't be used, the ballots
 * are this process's own. Thread-safe.
 */
final class Ballots {
  private static final Logger LOG = LoggerFactory.getLogger(Ballots.class);

  private static final Duration MAX_AGE = Duration.ofDays(7);

  /** The name of a file of a ballot. */
  private static final Pattern FILE_NAME = Pattern.compile("[0-9a-f]{32}-[0-9a-f]{16}-(\\d{1,18})");

  private static final byte[] EMPTY = BootstrapFrameCodec.encode(Ballot.EMPTY);

  /** Each further attempt means that another process has voted. */
  private static final int MAX_ATTEMPTS = 10_000;

  private static final FileAttribute<?> FILE_PERMISSIONS = JobFile.permissions("rw-------");

  private final Path folder; // null if the ballots are not shared
  private final long hostHash;
  private final JoinRules rules;
  private final long random = ByteBuffer.wrap(SessionKey.nonce(Long.BYTES)).getLong();
  private long folderId;

  /** The ballots that are not shared. Only used by one task at a time. */
  private final Map<Nonce, Ballot> own = new HashMap<>();

  // Guarded by this. The last task.
  private CompletableFuture<?> last = CompletableFuture.completedFuture(null);

  /**
   * Checks the folder, and deletes old files from it. Blocks.
   *
   * @param folder for the files, or null for none; created if it does not exist
   * @param hostHash as in {@link HostIdentity}: hosts that are only pretended share a folder
   */
  Ballots(Path folder, long hostHash, JoinRules rules) {
    this.hostHash = hostHash;
    this.rules = rules;
    this.folder = folder != null && isUsable(folder) ? folder : null;
  }

  /** Opens the ballots of this user's processes on a host. Blocks; never fails. */
  static Ballots of(long hostHash, JoinRules rules) {
    try {
      return new Ballots(JobFile.folder("self").resolve("ballots"), hostHash, rules);
    } catch (IOException | FluxCclException e) {
      LOG.debug("this process has no folder for ballots", e);
      return new Ballots(null, hostHash, rules);
    }
  }

  private boolean isUsable(Path candidate) {
    try (SecureDirectoryStream<Path> files = open(candidate)) {
      Path one = temporary();
      Path other = temporary();
      LocalFiles.replace(files, one, EMPTY, FILE_PERMISSIONS);
      Files.createLink(candidate.resolve(other), candidate.resolve(one));
      JobFile.delete(files, one);
      JobFile.delete(files, other);
      Map<String, Object> id = Files.readAttributes(candidate, "unix:dev,ino");
      folderId = HostIdentity.hash(id.get("dev") + "|" + id.get("ino"));
      Instant oldest = Instant.now().minus(MAX_AGE);
      for (Path name : JobFile.names(files)) {
        if (lastModified(files, name).isBefore(oldest)) {
          JobFile.delete(files, name);
        }
      }
      return true;
    } catch (IOException | UnsupportedOperationException e) {
      LOG.debug("ballots of this process are not shared, because {} can't be used", candidate, e);
      return false;
    }
  }

  private static Instant lastModified(SecureDirectoryStream<Path> files, Path name) {
    try {
      return files
          .getFileAttributeView(name, BasicFileAttributeView.class)
          .readAttributes()
          .lastModifiedTime()
          .toInstant();
    } catch (IOException e) {
      LOG.trace("another process has deleted {}", name, e);
      return Instant.MAX;
    }
  }

  /** Whether other processes of this host share these ballots. Does not change. */
  boolean isShared() {
    return folder != null;
  }

  /**
   * Returns the number of this process's host as a voter: equal for the processes that share this
   * folder, and random if this process does not share its ballots.
   */
  long host() {
    return isShared() ? HostIdentity.hash(hostHash + "|" + folderId) : random;
  }

  /**
   * Updates the ballot on the epoch after a roster by {@link JoinRules#vote}, asynchronously, in
   * the order of the calls.
   *
   * @return completes with the valid ballot; fails with a TransportFailure that names the folder if
   *     a shared ballot can't be written any more: an own one might contradict another process
   */
  CompletableFuture<Ballot> vote(Nonce base, Ballot request) {
    return enqueue(() -> isShared() ? voteShared(base, request) : voteAlone(base, request));
  }

  /** Deletes a ballot, asynchronously. No process may vote on it any more. */
  void forget(Nonce base) {
    enqueue(
        () -> {
          own.remove(base);
          if (isShared()) {
            forgetShared(base);
          }
          return null;
        });
  }

  private synchronized <T> CompletableFuture<T> enqueue(Supplier<T> task) {
    CompletableFuture<T> next =
        last.handleAsync((done, failure) -> task.get(), BlockingTasks.EXECUTOR);
    last = next;
    return next;
  }

  private Ballot voteAlone(Nonce base, Ballot request) {
    Ballot ballot = rules.vote(own.getOrDefault(base, Ballot.EMPTY), request);
    own.put(base, ballot);
    return ballot;
  }

  private Ballot voteShared(Nonce base, Ballot request) {
    try {
      for (int attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
        try (SecureDirectoryStream<Path> files = open(folder)) {
          Optional<Ballot> ballot = tryVote(files, base, request);
          if (ballot.isPresent()) {
            return ballot.get();
          }
        }
      }
      throw new IOException("other processes have voted " + MAX_ATTEMPTS + " times meanwhile");
    } catch (IOException | FluxCclException e) {
      String text =
          "this host's votes on the next group can't be written to %s: %s; free space there, and"
              + " start this process again";
      throw new TransportFailure(FluxCclException.NO_RANK, Text.of(text, folder, e), e);
    }
  }

  /** Returns the ballot if it contains the vote, or nothing if another process was faster. */
  private Optional<Ballot> tryVote(SecureDirectoryStream<Path> files, Nonce base, Ballot request)
      throws IOException {
    try {
      long number =
          JobFile.names(files).stream().mapToLong(name -> numberOf(base, name)).max().orElse(0);
      byte[] before = number == 0 ? EMPTY : read(files, fileOf(base, number));
      if (before.length == 0) {
        return Optional.empty();
      }
      Ballot valid = BootstrapFrameCodec.decodeBallot(before);
      byte[] after = BootstrapFrameCodec.encode(rules.vote(valid, request));
      if (Arrays.equals(before, after)) {
        return Optional.of(valid);
      }
      create(files, fileOf(base, number + 1), after);
      if (number > 1) {
        LocalFiles.replace(
            files, fileOf(base, number - 1), BootstrapFrame.NO_BYTES, FILE_PERMISSIONS);
      }
      return Optional.of(BootstrapFrameCodec.decodeBallot(after));
    } catch (FileAlreadyExistsException | NoSuchFileException e) {
      LOG.trace("another process has voted on {}, or forgotten it", base, e);
      return Optional.empty();
    }
  }

  private static byte[] read(SecureDirectoryStream<Path> files, Path name) throws IOException {
    return LocalFiles.read(
        files, name, LocalFiles.userOf("self"), BootstrapFrameCodec.CONTROL_LIMIT);
  }

  /** Creates a file with all of its content, or fails if it exists. */
  private void create(SecureDirectoryStream<Path> files, Path name, byte[] content)
      throws IOException {
    Path temporary = temporary();
    LocalFiles.replace(files, temporary, content, FILE_PERMISSIONS);
    try {
      Files.createLink(folder.resolve(name), folder.resolve(temporary));
    } finally {
      JobFile.delete(files, temporary);
    }
  }

  private void forgetShared(Nonce base) {
    try (SecureDirectoryStream<Path> files = open(folder)) {
      for (Path name : JobFile.names(files)) {
        if (numberOf(base, name) > 0) {
          JobFile.delete(files, name);
        }
      }
    } catch (IOException e) {
      LOG.debug("the ballot on {} can't be deleted", base, e);
    }
  }

  // ---- names ----

  private static Path temporary() {
    return Path.of(UUID.randomUUID() + ".tmp");
  }

  private Path fileOf(Nonce base, long number) {
    return Path.of(Text.of("%016x%016x-%016x-%d", base.high(), base.low(), hostHash, number));
  }

  /** Returns the number of a file of a ballot, or 0 for another file. */
  private long numberOf(Nonce base, Path name) {
    Matcher matcher = FILE_NAME.matcher(name.toString());
    long number = matcher.matches() ? Long.parseLong(matcher.group(1)) : 0;
    return name.equals(fileOf(base, number)) ? number : 0;
  }

  /** Opens a folder that only this user can read and change, and creates it if it is missing. */
  private static SecureDirectoryStream<Path> open(Path folder) throws IOException {
    Path parent = folder.toAbsolutePath().getParent();
    for (Path each : List.of(parent, folder)) {
      if (!Files.exists(each)) {
        JobFile.create(each);
      }
    }
    // If the parent belonged to another user, that user could replace the folder.
    LocalFiles.open(parent, LocalFiles.userOf("self"), LocalFiles.OTHERS_ALL).close();
    return LocalFiles.open(folder, LocalFiles.userOf("self"), LocalFiles.OTHERS_ALL);
  }
}

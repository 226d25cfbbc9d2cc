// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.LocalFiles;
import io.fluxccl.Text;
import io.fluxccl.TransportFailure;
import io.fluxccl.bootstrap.BootstrapFrameCodec.Limits;
import io.fluxccl.bootstrap.Roster.Contact;
import io.fluxccl.concurrent.BlockingTasks;
import io.fluxccl.concurrent.UseCount;
import io.fluxccl.settings.Settings;
import io.fluxccl.wire.WireReader;
import io.fluxccl.wire.WireWriter;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.file.DirectoryIteratorException;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.SecureDirectoryStream;
import java.nio.file.attribute.FileAttribute;
import java.nio.file.attribute.PosixFilePermissions;
import java.nio.file.attribute.UserPrincipal;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.LongPredicate;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * A file by which this user's other processes find the ranks of this process. It holds the
 * addresses of the job's ranks, and a key that permits dump requests and nothing else. Only this
 * user can read the folder. The first rank of a process writes the file when the job has formed,
 * and the last one deletes it. A killed process leaves its file, which the next process that writes
 * one deletes. Containers may share the folder: a file's name begins with the PID namespace, and
 * files of other namespaces are neither read nor deleted.
 *
 * @param process of the ranks
 * @param root the address of the job
 * @param key for dump requests
 * @param members where each rank listens, by rank
 */
record JobFile(
    long process,
    InetSocketAddress root,
    SessionKey key,
    @Limits(least = 1) List<Contact> members) {
  /** The environment variable that names the folder, instead of one in /tmp. */
  static final String VARIABLE = "FLUXCCL_RUNTIME_DIR";

  private static final Logger LOG = LoggerFactory.getLogger(JobFile.class);
  private static final int MAGIC = 0x464c584a;
  private static final int VERSION = 2;

  /** The PID namespace, the process, the port of the root, and a number. */
  private static final Pattern FILE_NAME =
      Pattern.compile("(\\d+)-(\\d{1,18})-\\d+-\\d+(\\..*\\.tmp)?");

  private static final AtomicInteger FILES = new AtomicInteger();

  /** The files of this process, by the root of the job. */
  private static final Map<InetSocketAddress, Written> WRITTEN = new ConcurrentHashMap<>();

  /** Returns the folder of the files of a process's user. */
  static Path folder(String process) throws IOException {
    Object user = Files.getAttribute(Path.of("/proc", process), "unix:uid");
    return Settings.ofProcess().file(VARIABLE).orElse(Path.of("/tmp", "fluxccl-" + user));
  }

  /** Opens that folder, if only the process's user can read and change it. The caller closes it. */
  private static SecureDirectoryStream<Path> open(String process) throws IOException {
    return LocalFiles.open(folder(process), LocalFiles.userOf(process), LocalFiles.OTHERS_ALL);
  }

  /**
   * Adds a rank of this process whose job has formed. The first rank's file is written
   * asynchronously, on another thread.
   */
  static Written write(InetSocketAddress job, SessionKey key, List<Contact> members) {
    // Only this user can read the key, so it needs no check of the user that a process has.
    SessionKey written = new SessionKey(key.key(), key.guarded(), false);
    JobFile entry = new JobFile(ProcessHandle.current().pid(), job, written, members);
    return WRITTEN.compute(
        entry.root(),
        (root, known) ->
            known != null && known.members.equals(members) && known.tryRetain()
                ? known
                : new Written(entry));
  }

  private String fileName() throws IOException {
    return Text.of("%s-%d-%d-%d", namespace(), process, root.getPort(), FILES.incrementAndGet());
  }

  /** Returns the number of this process's PID namespace. */
  private static String namespace() throws IOException {
    return Files.readSymbolicLink(Path.of("/proc/self/ns/pid")).toString().replaceAll("\\D", "");
  }

  /**
   * Returns the entries of one user's live processes on this machine.
   *
   * @param of a process of that user, or {@code self}
   * @param wanted accepts the ids of the processes
   * @throws IOException if the folder can't be trusted to be that user's
   */
  static List<JobFile> all(String of, LongPredicate wanted) throws IOException {
    List<JobFile> entries = new ArrayList<>();
    try (SecureDirectoryStream<Path> folder = open(of)) {
      UserPrincipal user = LocalFiles.userOf(of);
      for (Map.Entry<Path, Long> file : files(folder).entrySet()) {
        long process = file.getValue();
        if (wanted.test(process)) {
          read(folder, file.getKey(), user, process).ifPresent(entries::add);
        }
      }
    } catch (NoSuchFileException e) {
      LOG.debug("no process of that user has a rank", e);
    }
    return entries;
  }

  /** Returns the entries of this user's live processes in the job at one of the addresses. */
  static List<JobFile> ofJob(Set<InetSocketAddress> addresses) {
    try {
      return all("self", process -> true).stream()
          .filter(each -> addresses.contains(each.root()))
          .toList();
    } catch (IOException e) {
      LOG.debug("no files of ranks can be read", e);
      return List.of();
    }
  }

  /** Returns where each rank listens. */
  List<InetSocketAddress> addresses() {
    return members.stream().map(Contact::address).toList();
  }

  private static Optional<JobFile> read(
      SecureDirectoryStream<Path> folder, Path file, UserPrincipal user, long process) {
    try {
      boolean isOfUser = LocalFiles.userOf(Long.toString(process)).equals(user);
      JobFile entry =
          decode(LocalFiles.read(folder, file, user, BootstrapFrameCodec.CONTROL_LIMIT));
      return Optional.of(entry).filter(each -> isOfUser && each.process == process);
    } catch (FluxCclException | IOException e) {
      LOG.debug("{} is no entry of a rank", file, e); // it was deleted, or its process has ended
      return Optional.empty();
    }
  }

  /** Returns the names of the files of this PID namespace, each with its process. */
  private static Map<Path, Long> files(SecureDirectoryStream<Path> folder) throws IOException {
    String namespace = namespace();
    Map<Path, Long> files = new HashMap<>();
    for (Path file : names(folder)) {
      Matcher name = FILE_NAME.matcher(file.toString());
      if (name.matches() && name.group(1).equals(namespace)) {
        files.put(file, Long.parseLong(name.group(2)));
      }
    }
    return files;
  }

  /** Returns the names of the files of a folder that was just opened. */
  static List<Path> names(SecureDirectoryStream<Path> folder) throws IOException {
    List<Path> names = new ArrayList<>();
    try {
      folder.forEach(each -> names.add(each.getFileName()));
      return names;
    } catch (DirectoryIteratorException e) {
      throw e.getCause();
    }
  }

  byte[] encode() {
    return BootstrapFrameCodec.write(new WireWriter().header(MAGIC, VERSION), this).toBytes();
  }

  static JobFile decode(byte[] bytes) {
    WireReader in =
        new WireReader(
            bytes,
            problem -> new TransportFailure(FluxCclException.NO_RANK, "malformed: " + problem));
    JobFile file = BootstrapFrameCodec.read(JobFile.class, in.header(MAGIC, VERSION));
    in.end();
    return file;
  }

  /** Writes this entry, and deletes the files of dead processes; returns the name in the folder. */
  private Optional<Path> create() {
    try {
      create(folder("self"));
      try (SecureDirectoryStream<Path> folder = open("self")) {
        deleteStale(folder);
        Path name = Path.of(fileName());
        LocalFiles.replace(folder, name, encode(), permissions("rw-------"));
        return Optional.of(name);
      }
    } catch (FileSystemException | UnsupportedOperationException e) {
      LOG.debug("no file for fluxccl dump could be written", e);
    } catch (InvalidUsage | IOException e) {
      LOG.warn("fluxccl dump will find no rank by its process: {}", e.getMessage());
    }
    return Optional.empty();
  }

  /** Creates a folder that only this user can read and change, unless it exists. */
  static void create(Path folder) throws IOException {
    try {
      Files.createDirectory(folder, permissions("rwx------"));
    } catch (FileAlreadyExistsException e) {
      LOG.trace("{} is there", folder, e);
    }
  }

  private static void deleteStale(SecureDirectoryStream<Path> folder) throws IOException {
    for (Map.Entry<Path, Long> each : files(folder).entrySet()) {
      if (!Files.exists(Path.of("/proc", each.getValue().toString()))) {
        delete(folder, each.getKey());
      }
    }
  }

  /** Deletes a file, unless another process has deleted it. */
  static void delete(SecureDirectoryStream<Path> folder, Path name) throws IOException {
    try {
      folder.deleteFile(name);
    } catch (NoSuchFileException e) {
      LOG.trace("another process has deleted {}", name, e);
    }
  }

  static FileAttribute<?> permissions(String text) {
    return PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString(text));
  }

  private static void delete(Path file) {
    try (SecureDirectoryStream<Path> folder = open("self")) {
      folder.deleteFile(file);
    } catch (IOException e) {
      LOG.debug("{} can't be deleted", file, e);
    }
  }

  /** A file that is being written, was written, or has no rank any more. Thread-safe. */
  static final class Written extends UseCount implements AutoCloseable {
    private final List<Contact> members;
    private final CompletableFuture<Optional<Path>> file;

    private Written(JobFile entry) {
      members = entry.members();
      file = CompletableFuture.supplyAsync(entry::create, BlockingTasks.EXECUTOR);
    }

    /** Removes a rank. Called once by each. */
    @Override
    public void close() {
      release();
    }

    @Override
    protected void lastUserLeft() {
      WRITTEN.values().remove(this);
      file.thenAcceptAsync(name -> name.ifPresent(JobFile::delete), BlockingTasks.EXECUTOR);
    }
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.LocalFiles;
import io.fluxccl.Text;
import io.fluxccl.TransportFailure;
import io.fluxccl.bootstrap.BootstrapFrame.Member;
import io.fluxccl.concurrent.BlockingTasks;
import io.fluxccl.concurrent.UseCount;
import io.fluxccl.wire.WireReader;
import io.fluxccl.wire.WireWriter;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * A file by which this user's other processes find the ranks of this process: where the ranks of
 * their job listen, and the key that lets its reader ask what they do, and do nothing else. Only
 * this user can read the folder. The first rank of a process writes the file when the job has
 * formed, and the last one deletes it. A killed process leaves its file, which the next process
 * that writes one deletes. Containers may share the folder: a file's name begins with the PID
 * namespace, and files of other namespaces are neither read nor deleted.
 *
 * @param process of the ranks
 * @param root where the ranks of the job registered
 * @param key of inquiries
 * @param members where each rank listens, by rank
 */
record JobEntry(long process, InetSocketAddress root, SessionKey key, List<Member> members) {
  /** The environment variable that names the folder, instead of one in /tmp. */
  static final String VARIABLE = "FLUXCCL_RUNTIME_DIR";

  private static final Logger LOG = LoggerFactory.getLogger(JobEntry.class);
  private static final int MAGIC = 0x464c584a;
  private static final int VERSION = 1;
  private static final int MIN_MEMBER_BYTES = 11;
  private static final int MAX_KEY_BYTES = 64;
  private static final int NOT_OWN = 0077;

  /** The PID namespace, the process, the port of the root, and a number. */
  private static final Pattern FILE_NAME = Pattern.compile("(\\d+)-(\\d+)-\\d+-\\d+(\\.part)?");

  private static final AtomicInteger FILES = new AtomicInteger();

  /** The files of this process, by the root of the job. */
  private static final Map<InetSocketAddress, Written> WRITTEN = new ConcurrentHashMap<>();

  /** Returns the folder of a user's files. */
  static Path folder(int user) {
    String given = System.getenv().getOrDefault(VARIABLE, "").strip();
    return given.isEmpty() ? Path.of("/tmp", "fluxccl-" + user) : LocalFiles.path(VARIABLE, given);
  }

  /** Returns the user that a process belongs to. */
  static int userOf(String process) throws IOException {
    return (Integer) Files.getAttribute(Path.of("/proc", process), "unix:uid");
  }

  /**
   * Adds a rank of this process whose job has formed. The first one writes the file, soon, and not
   * on this thread.
   */
  static Written write(TcpBootstrap bootstrap, SessionKey key, List<Member> members) {
    JobEntry entry = new JobEntry(ProcessHandle.current().pid(), bootstrap.root(), key, members);
    return WRITTEN.compute(
        entry.root(),
        (root, known) -> {
          if (known != null && known.tryRetain()) {
            return known;
          }
          Written first = new Written();
          BlockingTasks.EXECUTOR.execute(() -> first.write(entry));
          return first;
        });
  }

  private String fileName() throws IOException {
    return Text.of("%s-%d-%d-%d", namespace(), process, root.getPort(), FILES.incrementAndGet());
  }

  /** Returns the number of this process's PID namespace. */
  private static String namespace() throws IOException {
    return Files.readSymbolicLink(Path.of("/proc/self/ns/pid")).toString().replaceAll("\\D", "");
  }

  /** Returns the entries of the ranks on this machine of a user, without those that have died. */
  static List<JobEntry> all(int user) throws IOException {
    List<JobEntry> entries = new ArrayList<>();
    for (Path file : files(folder(user), true)) {
      try {
        entries.add(decode(Files.readAllBytes(file)));
      } catch (FluxCclException | IOException e) {
        LOG.debug("{} is no entry of a rank", file, e); // it is being written, or deleted
      }
    }
    return entries;
  }

  /** Returns the files of the processes of this PID namespace that live, or of those that ended. */
  private static List<Path> files(Path folder, boolean live) throws IOException {
    if (!Files.isDirectory(folder, LinkOption.NOFOLLOW_LINKS)) {
      return List.of();
    }
    List<Path> found = new ArrayList<>();
    try (Stream<Path> files = Files.list(folder)) {
      String namespace = namespace();
      for (Path file : files.toList()) {
        Matcher name = FILE_NAME.matcher(file.getFileName().toString());
        if (name.matches()
            && name.group(1).equals(namespace)
            && live == Files.exists(Path.of("/proc", name.group(2)))) {
          found.add(file);
        }
      }
    }
    return found;
  }

  byte[] encode() {
    WireWriter out = new WireWriter().header(MAGIC, VERSION).int64(process);
    UniqueId.writeAddress(root, out);
    out.bool(key.guarded()).bytes(key.key()).int32(members.size());
    for (Member member : members) {
      UniqueId.writeAddress(member.address(), out);
      out.int64(member.hostHash()).int64(member.processHash());
    }
    return out.toBytes();
  }

  static JobEntry decode(byte[] bytes) {
    WireReader in =
        new WireReader(
            ByteBuffer.wrap(bytes),
            problem -> new TransportFailure(FluxCclException.NO_RANK, "malformed: " + problem));
    in.header(MAGIC, VERSION);
    long process = in.int64("process");
    InetSocketAddress root = UniqueId.readAddress(in);
    boolean guarded = in.bool("guarded");
    SessionKey key = new SessionKey(in.bytes("key", MAX_KEY_BYTES), guarded, false);
    int count = in.int32("count", 1, in.remaining() / MIN_MEMBER_BYTES);
    List<Member> members = new ArrayList<>(count);
    for (int i = 0; i < count; i++) {
      InetSocketAddress address = UniqueId.readAddress(in);
      members.add(new Member(address, in.int64("hostHash"), in.int64("processHash")));
    }
    return new JobEntry(process, root, key, members);
  }

  /** A file that is being written, was written, or has no rank any more. Thread-safe. */
  static final class Written extends UseCount implements AutoCloseable {
    // Guarded by this.
    private Path file;
    private boolean closed;

    private synchronized void write(JobEntry entry) {
      if (closed) {
        return;
      }
      try {
        int user = userOf("self");
        Path folder = folder(user);
        if (!Files.exists(folder)) {
          Files.createDirectory(
              folder,
              PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwx------")));
        }
        int mode = (Integer) Files.getAttribute(folder, "unix:mode", LinkOption.NOFOLLOW_LINKS);
        int owner = (Integer) Files.getAttribute(folder, "unix:uid", LinkOption.NOFOLLOW_LINKS);
        if (owner != user || (mode & NOT_OWN) != 0 || !Files.isDirectory(folder)) {
          LOG.warn(
              "{} is not of this user alone (mode 0700): fluxccl dump will find no rank by its process",
              folder);
          return;
        }
        for (Path stale : files(folder, false)) {
          Files.deleteIfExists(stale);
        }
        String name = entry.fileName();
        Path part = Files.write(folder.resolve(name + ".part"), entry.encode());
        file = Files.move(part, folder.resolve(name), StandardCopyOption.REPLACE_EXISTING);
      } catch (InvalidUsage e) {
        LOG.warn("fluxccl dump will find no rank by its process: {}", e.getMessage());
      } catch (IOException | UnsupportedOperationException e) {
        LOG.debug("no file for fluxccl dump could be written", e);
      }
    }

    /** Takes a rank out. Called once by each. */
    @Override
    public void close() {
      release();
    }

    @Override
    protected void lastUserLeft() {
      WRITTEN.values().remove(this);
      BlockingTasks.EXECUTOR.execute(this::delete);
    }

    private synchronized void delete() {
      closed = true;
      try {
        if (file != null) {
          Files.deleteIfExists(file);
        }
      } catch (IOException e) {
        LOG.debug("{} can't be deleted", file, e);
      }
    }
  }
}

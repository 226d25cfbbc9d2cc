// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.training;

import io.fluxccl.InvalidUsage;
import io.fluxccl.concurrent.BlockingTasks;
import io.fluxccl.device.DeviceView;
import io.fluxccl.group.Rank;
import io.fluxccl.wire.WireReader;
import io.fluxccl.wire.WireWriter;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import java.util.zip.CRC32C;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import reactor.core.publisher.Mono;

/**
 * Files of a training's state in a folder, by the step after which they were written. A process
 * that dies while it writes leaves no file that is read: a file gets its name when all of it is on
 * the disk, and ends with a checksum.
 *
 * <p>If one rank writes, it is enough that one rank reads: {@link ParameterSync#restore} gives the
 * newest state to all. If each rank has state of its own, each writes to a folder of its own, and
 * {@link #agree} finds the newest step that all of them have. One instance at a time writes to a
 * folder. The Monos are cold, and signal on threads that may block.
 *
 * <pre>{@code
 * Checkpoint checkpoint = Checkpoint.in(Path.of("checkpoints"), 3);
 * checkpoint.write(position, parameters).block();
 * checkpoint.newest().flatMap(found -> checkpoint.read(found, parameters)).block();
 * }</pre>
 */
public final class Checkpoint {
  private static final Logger LOG = LoggerFactory.getLogger(Checkpoint.class);
  private static final int MAGIC = 0x46434b50;
  private static final int VERSION = 1;
  private static final int PIECE = 1 << 20;
  private static final int MOST_HEAD_BYTES = 1 << 26;
  private static final String UNFINISHED = ".unfinished";
  private static final Pattern NAME = Pattern.compile("step-(0|[1-9]\\d{0,18})\\.checkpoint(.*)");
  private static final int START_BYTES =
      new WireWriter().header(MAGIC, VERSION).int32(0).toBytes().length;
  private static final int MOST_TEXT_BYTES = 4096;

  private final Path folder;
  private final int kept;

  private Checkpoint(Path folder, int kept) {
    this.folder = folder;
    this.kept = kept;
  }

  /**
   * Returns the checkpoints of a folder, which is created by the first write.
   *
   * @param kept number of newest files that a write leaves, 1 or more
   */
  public static Checkpoint in(Path folder, int kept) {
    InvalidUsage.requireNonNull(folder, "Checkpoint", "folder");
    if (kept < 1) {
      throw InvalidUsage.of("Checkpoint kept=%s; give 1 or more", kept);
    }
    return new Checkpoint(folder, kept);
  }

  /**
   * Writes a file, and deletes old ones. If training has continued from an earlier step, this also
   * deletes the files of later steps. Nothing may change the state until it completes.
   *
   * @param step 0 or more; a file of the same step is replaced
   * @param state by name
   * @return completes when the file is on the disk
   */
  public Mono<Void> write(long step, Map<String, ? extends DeviceView> state) {
    return blocking("write", () -> writeFile(step, state));
  }

  /** Writes one file at a time: a write deletes the unfinished files of others. */
  private synchronized Void writeFile(long step, Map<String, ? extends DeviceView> state)
      throws IOException {
    if (step < 0) {
      throw InvalidUsage.of("checkpoint write(step=%s); give 0 or more", step);
    }
    Files.createDirectories(folder);
    for (long left : named(UNFINISHED)) {
      Files.deleteIfExists(folder.resolve(nameOf(left) + UNFINISHED)); // by a dead process
    }
    Path unfinished = folder.resolve(nameOf(step) + UNFINISHED);
    try (FileChannel out =
        FileChannel.open(
            unfinished,
            StandardOpenOption.CREATE,
            StandardOpenOption.TRUNCATE_EXISTING,
            StandardOpenOption.WRITE)) {
      writeAll(out, step, new TreeMap<>(state));
      out.force(true);
    }
    for (long later : named().stream().filter(each -> each > step).toList()) {
      Files.deleteIfExists(file(later));
    }
    Files.move(unfinished, file(step), StandardCopyOption.ATOMIC_MOVE);
    try (FileChannel directory = FileChannel.open(folder)) {
      directory.force(true);
    }
    for (long old : named().stream().skip(kept).toList()) {
      Files.deleteIfExists(file(old));
    }
    return null;
  }

  private static void writeAll(FileChannel out, long step, Map<String, ? extends DeviceView> state)
      throws IOException {
    WireWriter head = new WireWriter().int64(step).int32(state.size());
    state.forEach(
        (name, view) -> head.string(name).string(view.type().label()).int64(view.buffer().size()));
    byte[] fields = head.toBytes();
    CRC32C sum = new CRC32C();
    byte[] start = new WireWriter().header(MAGIC, VERSION).int32(fields.length).toBytes();
    put(out, ByteBuffer.wrap(start), sum);
    put(out, ByteBuffer.wrap(fields), sum);
    ByteBuffer piece = piece();
    for (DeviceView view : state.values()) {
      long size = view.buffer().size();
      for (long offset = 0; offset < size; offset += PIECE) {
        piece.clear().limit((int) Math.min(PIECE, size - offset));
        view.buffer().download(offset, piece);
        put(out, piece.flip(), sum);
      }
    }
    put(out, ByteBuffer.wrap(new WireWriter().int64(sum.getValue()).toBytes()), sum);
  }

  private static void put(FileChannel out, ByteBuffer bytes, CRC32C sum) throws IOException {
    sum.update(bytes.duplicate());
    while (bytes.hasRemaining()) {
      out.write(bytes);
    }
  }

  /** Returns the step of the newest complete file; nothing if there is none. */
  public Mono<Long> newest() {
    return blocking("newest", () -> named().stream().filter(this::isComplete).findFirst())
        .flatMap(Mono::justOrEmpty);
  }

  /**
   * Returns the newest step of which every rank has a complete file; empty if there is none. Every
   * rank subscribes. Fails on every rank if one can't read its folder.
   */
  public Mono<OptionalLong> agree(Rank rank) {
    return ParameterSync.exchange(
        rank,
        () -> {
          try {
            WireWriter out = new WireWriter().string("");
            named().stream().filter(this::isComplete).forEach(out::int64);
            return out.toBytes();
          } catch (IOException | RuntimeException e) {
            // The other ranks wait for this message.
            String text = refusal("agree", e).getMessage();
            return new WireWriter()
                .string(text.substring(0, Math.min(text.length(), MOST_TEXT_BYTES / 4)))
                .toBytes();
          }
        },
        messages -> {
          Set<Long> common = new HashSet<>(steps(messages.get(0), 0));
          for (int from = 1; from < messages.size(); from++) {
            common.retainAll(steps(messages.get(from), from));
          }
          return common.stream().mapToLong(Long::longValue).max();
        });
  }

  private static List<Long> steps(byte[] message, int from) {
    WireReader in = WireReader.ofPeer(message, "list of checkpoints", from);
    String problem = in.string("problem", MOST_TEXT_BYTES);
    if (!problem.isEmpty()) {
      throw InvalidUsage.of("rank %s: %s", from, problem);
    }
    List<Long> steps = new ArrayList<>();
    while (in.remaining() > 0) {
      steps.add(in.int64("step"));
    }
    return steps;
  }

  /**
   * Replaces the state by that of a file.
   *
   * @param step as {@link #newest} or {@link #agree} has returned it
   * @param state the names, with the sizes that were written
   * @return the step. Fails with {@link InvalidUsage}, before anything is replaced, if the file is
   *     incomplete or does not fit the state; the error names the file
   */
  public Mono<Long> read(long step, Map<String, ? extends DeviceView> state) {
    return blocking(
        "read",
        () -> {
          Map<String, DeviceView> inOrder = new TreeMap<>(state);
          requireComplete(step);
          try (FileChannel in = FileChannel.open(file(step))) {
            readHead(in, step, inOrder);
            ParameterSync.replacing(state);
            ByteBuffer piece = piece();
            for (DeviceView view : inOrder.values()) {
              long size = view.buffer().size();
              for (long offset = 0; offset < size; offset += PIECE) {
                piece.clear().limit((int) Math.min(PIECE, size - offset));
                fill(in, piece);
                view.buffer().upload(offset, piece.flip());
              }
            }
          }
          ParameterSync.replaced(state);
          return step;
        });
  }

  private void readHead(FileChannel in, long step, Map<String, ? extends DeviceView> state)
      throws IOException {
    byte[] start = new byte[START_BYTES];
    fill(in, ByteBuffer.wrap(start));
    int length = reader(start, step).header(MAGIC, VERSION).int32("head", 0, MOST_HEAD_BYTES);
    byte[] fields = new byte[length];
    fill(in, ByteBuffer.wrap(fields));
    WireReader head = reader(fields, step);
    long written = head.int64("step");
    head.check(written == step, "step", written + ", expected " + step);
    int entries = head.int32("entries");
    head.check(entries == state.size(), "entries", entries + ", expected " + state.size());
    state.forEach(
        (name, view) -> {
          String found = head.string("name", MOST_HEAD_BYTES);
          head.check(found.equals(name), "name", found + ", expected " + name);
          String type = head.string("type of " + name, MOST_HEAD_BYTES);
          String own = view.type().label();
          head.check(type.equals(own), "type of " + name, type + ", expected " + own);
          long size = head.int64("size of " + name);
          long expected = view.buffer().size();
          head.check(size == expected, "size of " + name, size + ", expected " + expected);
        });
  }

  private WireReader reader(byte[] bytes, long step) {
    return new WireReader(
        bytes,
        problem ->
            InvalidUsage.of("checkpoint %s does not fit this state: %s", file(step), problem));
  }

  private boolean isComplete(long step) {
    try {
      requireComplete(step);
      return true;
    } catch (IOException | InvalidUsage e) {
      LOG.warn("a checkpoint is ignored: {}", e.getMessage());
      return false;
    }
  }

  private void requireComplete(long step) throws IOException {
    try (FileChannel in = FileChannel.open(file(step))) {
      CRC32C sum = new CRC32C();
      ByteBuffer piece = piece();
      // The sum of no bytes is 0, so a file of zeros without a head would be complete.
      long end = in.size() - Long.BYTES;
      while (in.position() < end) {
        piece.clear().limit((int) Math.min(PIECE, end - in.position()));
        fill(in, piece);
        sum.update(piece.flip());
      }
      ByteBuffer last = ByteBuffer.allocate(Long.BYTES).order(ByteOrder.LITTLE_ENDIAN);
      if (end < START_BYTES || fill(in, last).flip().getLong() != sum.getValue()) {
        throw InvalidUsage.of("%s was damaged; read an earlier step", file(step));
      }
    }
  }

  private static ByteBuffer fill(FileChannel in, ByteBuffer target) throws IOException {
    while (target.hasRemaining()) {
      if (in.read(target) < 0) {
        throw new IOException("the file has become shorter");
      }
    }
    return target;
  }

  private static ByteBuffer piece() {
    return ByteBuffer.allocateDirect(PIECE).order(ByteOrder.LITTLE_ENDIAN);
  }

  /** Returns the steps of all files, the newest first. */
  private List<Long> named() throws IOException {
    return named("");
  }

  private List<Long> named(String end) throws IOException {
    if (Files.notExists(folder)) {
      return List.of();
    }
    try (Stream<Path> files = Files.list(folder)) {
      return files
          .map(file -> NAME.matcher(file.getFileName().toString()))
          .filter(name -> name.matches() && name.group(2).equals(end))
          .map(name -> new BigInteger(name.group(1)))
          .filter(step -> step.bitLength() < Long.SIZE)
          .map(BigInteger::longValue)
          .sorted(Comparator.reverseOrder())
          .toList();
    } catch (UncheckedIOException e) {
      throw e.getCause();
    }
  }

  private Path file(long step) {
    return folder.resolve(nameOf(step));
  }

  private static String nameOf(long step) {
    return "step-" + step + ".checkpoint";
  }

  private <T> Mono<T> blocking(String operation, Callable<T> body) {
    return Mono.fromCallable(BlockingTasks.typed(body))
        .onErrorMap(IOException.class, e -> refusal(operation, e))
        .subscribeOn(ParameterSync.BLOCKING);
  }

  private InvalidUsage refusal(String operation, Exception e) {
    return new InvalidUsage(
        "checkpoint " + operation + " in " + folder + ": " + e + "; check the folder", e);
  }
}

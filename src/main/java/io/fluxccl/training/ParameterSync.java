// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.training;

import io.fluxccl.Deadline;
import io.fluxccl.InvalidUsage;
import io.fluxccl.Text;
import io.fluxccl.concurrent.BlockingTasks;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceView;
import io.fluxccl.group.Rank;
import io.fluxccl.wire.WireReader;
import io.fluxccl.wire.WireWriter;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.WeakHashMap;
import java.util.function.Function;
import java.util.function.Supplier;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;
import reactor.core.scheduler.Scheduler;
import reactor.core.scheduler.Schedulers;

/**
 * Gives all ranks equal parameters: when training starts, and when a group heals after a failure.
 * Create one in each generation, on every rank, with the same parameters.
 *
 * <pre>{@code
 * long position = ParameterSync.of(group, parameters).restore(completed).block();
 * }</pre>
 *
 * <p>The Monos are cold, use {@link Rank#collectives} and the bootstrap, and signal on threads that
 * may block. Every rank subscribes to the same ones, while no other collective of that lane runs.
 */
public final class ParameterSync {
  static final Scheduler BLOCKING = Schedulers.fromExecutor(BlockingTasks.EXECUTOR);

  /** Tag of the bootstrap, apart from those of communicators (0x40...) and step loops (0x50...). */
  private static final int TAG = 0x60000000;

  private static final Duration LIMIT = Duration.ofMinutes(2);
  private static final int PIECE = 1 << 20;
  private static final int MOST_NAME_BYTES = 4096;

  /**
   * Targets of restores and of {@link Checkpoint#read}s that did not end. Keyed by buffer, because
   * the next generation has another instance.
   */
  private static final Map<DeviceBuffer, Target> INTERRUPTED =
      Collections.synchronizedMap(new WeakHashMap<>());

  private static final long PARTIAL = -1;

  /** The progress and the hash that a parameter will have, and those of before. */
  private record Target(long progress, long hash, long ownProgress, long ownHash) {}

  private final Rank rank;

  /** In the order of their names. */
  private final Map<String, DeviceView> parameters;

  private ParameterSync(Rank rank, Map<String, DeviceView> parameters) {
    this.rank = rank;
    this.parameters = parameters;
  }

  /** Parameters that are not equal on all ranks: their kind, or their values. */
  public static final class Mismatch extends InvalidUsage {
    private static final long serialVersionUID = 1L;

    private final String parameter;
    private final int differingRank;

    private Mismatch(String parameter, int differingRank, String message) {
      super(message);
      this.parameter = parameter;
      this.differingRank = differingRank;
    }

    /** Returns the name of the first parameter that differs. */
    public String parameter() {
      return parameter;
    }

    /** Returns the first rank whose parameter differs. */
    public int differingRank() {
      return differingRank;
    }
  }

  /**
   * Creates this rank's part.
   *
   * @param parameters by name; weights, and the optimiser's state if it has one. They stay the
   *     caller's
   */
  public static ParameterSync of(Rank rank, Map<String, ? extends DeviceView> parameters) {
    InvalidUsage.requireNonNull(rank, "ParameterSync", "rank");
    InvalidUsage.requireNonNull(parameters, "ParameterSync", "parameters");
    return new ParameterSync(rank, new TreeMap<>(parameters));
  }

  /**
   * Replaces the parameters by those of the rank that has progressed most; of several such ranks,
   * by those of the first one. So a new process gets the state of the ranks that survived, or one
   * process that has read a {@link Checkpoint} gives its state to all others. Then does {@link
   * #check}.
   *
   * <p>If it fails after it has begun to replace a rank's parameters, they may come from two ranks.
   * The next call with the same buffers therefore ignores that rank's {@code progress}, unless
   * {@link Checkpoint#read} has replaced all of them. If all have the hashes that they were to get,
   * or all still have their own, their progress is the one that belongs to these. Otherwise no rank
   * gets them.
   *
   * @param progress how far this rank's parameters are trained, such as the sampler's position; 0
   *     for new ones, negative for none that others may get
   * @return the progress of the parameters that all ranks now have. Fails on every rank, before
   *     anything is replaced: with {@link Mismatch} if names, types or sizes differ between ranks,
   *     and with {@link InvalidUsage} if no rank has whole parameters
   */
  public Mono<Long> restore(long progress) {
    return exchange(rank, () -> message(progress), ParameterSync::states).flatMap(this::replace);
  }

  private Mono<Long> replace(List<State> all) {
    State newest = newest(all);
    if (newest.progress < 0) {
      return Mono.error(
          InvalidUsage.of(
              "restore on rank %s: no rank has whole parameters; read a checkpoint on one rank,"
                  + " and give its progress",
              rank.rank()));
    }
    if (newest.rank != rank.rank()) {
      State own = all.get(rank.rank());
      parameters.forEach(
          (name, view) -> {
            long hash = newest.hashes.get(name);
            Target target = new Target(newest.progress, hash, own.progress, own.hashes.get(name));
            INTERRUPTED.put(view.buffer(), target);
          });
    }
    return Flux.fromIterable(parameters.values())
        .concatMap(view -> rank.collectives().broadcast(view, newest.rank))
        .then(check())
        .then(Mono.fromRunnable(() -> replaced(parameters)))
        .thenReturn(newest.progress);
  }

  /** Returns how far this rank's parameters are trained, also if the last restore did not end. */
  private long progressOr(long progress, Map<String, Long> hashes) {
    long replaced = Long.MAX_VALUE;
    long kept = Long.MAX_VALUE;
    for (Map.Entry<String, DeviceView> each : parameters.entrySet()) {
      Target target = INTERRUPTED.get(each.getValue().buffer());
      if (target != null) {
        long hash = hashes.get(each.getKey());
        replaced = Math.min(replaced, hash == target.hash ? target.progress : PARTIAL);
        kept = Math.min(kept, hash == target.ownHash ? target.ownProgress : PARTIAL);
      }
    }
    return replaced == Long.MAX_VALUE ? progress : Math.max(replaced, kept);
  }

  /** Notes that parameters are being replaced: until that ends, they have no progress. */
  static void replacing(Map<String, ? extends DeviceView> parameters) {
    Target none = new Target(PARTIAL, 0, PARTIAL, 0);
    parameters.values().forEach(view -> INTERRUPTED.put(view.buffer(), none));
  }

  /** Notes that parameters are whole, and as far trained as their owner says. */
  static void replaced(Map<String, ? extends DeviceView> parameters) {
    parameters.values().forEach(view -> INTERRUPTED.remove(view.buffer()));
  }

  /**
   * Compares a hash of each parameter on all ranks.
   *
   * @return completes if all are equal; otherwise fails with {@link Mismatch} on every rank
   */
  public Mono<Void> check() {
    return exchange(rank, () -> message(0), ParameterSync::requireEqual).then();
  }

  /** The parameters of a rank. */
  private record State(
      int rank, long progress, Map<String, String> kinds, Map<String, Long> hashes) {
    Map<String, String> texts() {
      Map<String, String> texts = new TreeMap<>();
      hashes.forEach((name, hash) -> texts.put(name, Text.of("the hash %016x", hash)));
      return texts;
    }
  }

  private byte[] message(long progress) {
    Map<String, Long> hashes = new TreeMap<>();
    parameters.forEach((name, view) -> hashes.put(name, hash(view)));
    WireWriter out = new WireWriter().int64(progressOr(progress, hashes));
    parameters.forEach(
        (name, view) ->
            out.string(name)
                .string(Text.of("%s x %s", view.type(), view.size()))
                .int64(hashes.get(name)));
    return out.toBytes();
  }

  /** Reads the states of all ranks, by rank; refuses those of other kinds than rank 0's. */
  private static List<State> states(List<byte[]> messages) {
    List<State> states = new ArrayList<>();
    for (int from = 0; from < messages.size(); from++) {
      WireReader in = WireReader.ofPeer(messages.get(from), "list of parameters", from);
      State state = new State(from, in.int64("progress"), new TreeMap<>(), new TreeMap<>());
      while (in.remaining() > 0) {
        String name = in.string("name", MOST_NAME_BYTES);
        state.kinds.put(name, in.string("kind", MOST_NAME_BYTES));
        state.hashes.put(name, in.int64("hash"));
      }
      states.add(state);
      requireSame(states.get(0).kinds, state.kinds, from, "give every rank the same parameters");
    }
    return states;
  }

  /** Returns the first state that has progressed most. */
  private static State newest(List<State> states) {
    return states.stream()
        .reduce((first, other) -> other.progress > first.progress ? other : first)
        .orElseThrow();
  }

  private static List<State> requireEqual(List<byte[]> messages) {
    List<State> states = states(messages);
    for (State state : states) {
      requireSame(
          states.get(0).texts(),
          state.texts(),
          state.rank,
          "apply the same updates on every rank, then call restore");
    }
    return states;
  }

  private static void requireSame(
      Map<String, String> first, Map<String, String> other, int number, String remedy) {
    Map<String, String> all = new TreeMap<>(first);
    all.putAll(other);
    for (String name : all.keySet()) {
      String expected = first.getOrDefault(name, "none");
      String found = other.getOrDefault(name, "none");
      if (!expected.equals(found)) {
        String problem =
            Text.of(
                "parameter '%s': rank 0 has %s, rank %s has %s; %s",
                name, expected, number, found, remedy);
        throw new Mismatch(name, number, problem);
      }
    }
  }

  /** Returns a hash of the bytes: equal for equal ones on every device. */
  static long hash(DeviceView view) {
    long size = view.buffer().size();
    ByteBuffer piece =
        ByteBuffer.allocateDirect((int) Math.min(size, PIECE)).order(ByteOrder.LITTLE_ENDIAN);
    long hash = size;
    for (long offset = 0; offset < size; offset += piece.limit()) {
      piece.clear().limit((int) Math.min(PIECE, size - offset));
      view.buffer().download(offset, piece);
      piece.flip();
      while (piece.remaining() >= Long.BYTES) {
        hash = mix(hash ^ piece.getLong());
      }
      while (piece.hasRemaining()) {
        hash = mix(hash ^ piece.get());
      }
    }
    return hash;
  }

  private static long mix(long value) {
    return Long.rotateLeft(value * 0x9e3779b97f4a7c15L, 29) * 0xbf58476d1ce4e5b9L;
  }

  /** Returns all ranks' messages, by rank, once a function has read them. */
  static <T> Mono<T> exchange(
      Rank rank, Supplier<byte[]> mine, Function<? super List<byte[]>, ? extends T> read) {
    return Mono.fromCallable(BlockingTasks.typed(mine::get))
        .subscribeOn(BLOCKING)
        .flatMap(
            message ->
                Mono.fromFuture(
                    () -> rank.bootstrap().exchange(TAG, message, Deadline.after(LIMIT)), true))
        .publishOn(BLOCKING)
        .map(read);
  }
}

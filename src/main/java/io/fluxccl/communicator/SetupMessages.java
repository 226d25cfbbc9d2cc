// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.communicator;

import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.RemoteFailure;
import io.fluxccl.Timeout;
import io.fluxccl.bootstrap.Bootstrap;
import io.fluxccl.wire.WireWriter;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.function.Function;
import java.util.function.Supplier;
import java.util.stream.IntStream;

/**
 * The messages of a set-up, over the bootstrap. Each kind has tags of its own, so that a connection
 * and a memory of one (rank, tag) never match. A rank that can't do its part sends an error instead
 * of leaving its peer to wait.
 *
 * <pre>
 *   bootstrap tag = 0x40000000 | kind &lt;&lt; 24 | tag         message = byte 0 (0 fine, 1 error), then payload or UTF-8 text
 * </pre>
 */
final class SetupMessages {
  /** The largest tag that users may name. */
  static final int MAX_TAG = (1 << 24) - 1;

  private static final int RESERVED = 0x40000000;
  private static final int MAX_ERROR_LENGTH = 1024;
  private static final byte FINE = 0;
  private static final byte ERROR = 1;

  /** The purpose of a message. */
  enum Kind {
    CONNECTION,
    MEMORY,
    RENDEZVOUS,
    EXCHANGE,
    NOTICE,
    DEMAND,
    READY
  }

  private final Bootstrap bootstrap;
  private final Executor continueOn;

  /**
   * Messages of one communicator.
   *
   * @param bootstrap that carries them
   * @param continueOn runs the step after a message: connecting, opening memory
   */
  SetupMessages(Bootstrap bootstrap, Executor continueOn) {
    this.bootstrap = bootstrap;
    this.continueOn = continueOn;
  }

  int rank() {
    return bootstrap.rank();
  }

  void checkPeer(int peer, int tag) {
    if (peer < 0 || peer >= bootstrap.nRanks()) {
      throw InvalidUsage.of("rank=%s is outside 0..%s", peer, bootstrap.nRanks() - 1);
    }
    checkTag(tag);
  }

  void checkTag(int tag) {
    if (tag < 0 || tag > MAX_TAG) {
      throw InvalidUsage.of("tag=%s is outside 0..%s", tag, MAX_TAG);
    }
  }

  CompletableFuture<Void> send(int peer, Kind kind, int tag, byte[] payload, Deadline deadline) {
    return bootstrap.send(peer, wireTag(kind, tag), framed(FINE, payload), deadline);
  }

  void sendError(int peer, Kind kind, int tag, Throwable reason, Deadline deadline) {
    bootstrap.send(peer, wireTag(kind, tag), framed(ERROR, text(reason)), deadline);
  }

  private static byte[] text(Throwable reason) {
    byte[] text = String.valueOf(reason.getMessage()).getBytes(StandardCharsets.UTF_8);
    return Arrays.copyOf(text, Math.min(text.length, MAX_ERROR_LENGTH));
  }

  /**
   * Receives; every error is of FluxCCL's tree and begins with {@code operation}. Completing the
   * result ends the wait, so that it takes no message that is for another.
   */
  CompletableFuture<byte[]> recv(
      int peer, Kind kind, int tag, String operation, Deadline deadline) {
    CompletableFuture<byte[]> arrival = bootstrap.recv(peer, wireTag(kind, tag), deadline);
    CompletableFuture<byte[]> result =
        arrival.handleAsync(
            (message, failure) -> {
              if (failure != null) {
                throw explain(FluxCclException.from(failure), peer, operation, deadline);
              }
              return result(peer, operation, message);
            },
            continueOn);
    result.whenComplete((payload, failure) -> arrival.cancel(false));
    return result;
  }

  private static byte[] result(int peer, String operation, byte[] message) {
    if (message.length < 1 || message[0] != FINE) {
      throw RemoteFailure.of(
          peer,
          "%s: rank %s could not do its part: %s",
          operation,
          peer,
          message.length < 1 ? "an empty message" : textOf(message));
    }
    return Arrays.copyOfRange(message, 1, message.length);
  }

  /** Sends an empty message to a peer and waits for its own. */
  CompletableFuture<Void> rendezvous(int peer, int tag, Deadline deadline) {
    return exchange(Kind.RENDEZVOUS, "rendezvous", peer, tag, new byte[0], deadline, bytes -> null);
  }

  /** Sends bytes to a peer and waits for its own. */
  CompletableFuture<byte[]> exchange(int peer, int tag, byte[] mine, Deadline deadline) {
    return exchange(Kind.EXCHANGE, "exchange", peer, tag, mine, deadline, bytes -> bytes);
  }

  private <T> CompletableFuture<T> exchange(
      Kind kind,
      String what,
      int peer,
      int tag,
      byte[] mine,
      Deadline deadline,
      Function<byte[], T> result) {
    CompletableFuture<Void> sent = send(peer, kind, tag, mine, deadline);
    CompletableFuture<byte[]> theirs =
        recv(peer, kind, tag, what + "(rank=" + peer + ", tag=" + tag + ")", deadline);
    CompletableFuture<T> answer = sent.thenCombine(theirs, (done, bytes) -> result.apply(bytes));
    answer.whenComplete((done, failure) -> theirs.cancel(false));
    return answer;
  }

  /** Sends bytes to all ranks and waits for those of all. */
  CompletableFuture<List<byte[]>> exchangeAll(int tag, byte[] mine, Deadline deadline) {
    CompletableFuture<List<byte[]>> exchanged = bootstrap.exchange(tag, mine, deadline);
    return exchanged.whenCompleteAsync((all, failure) -> {}, continueOn);
  }

  /**
   * Does this rank's part of a step of all ranks, sends its result or why it could not be done, and
   * waits for those of all.
   *
   * @param operation for messages
   * @param part returns the result; may block
   * @return the results; the error of this rank, or else of the first rank that could not do its
   *     part, after all ranks have sent theirs
   */
  CompletableFuture<List<byte[]>> exchangeAll(
      int tag, String operation, Supplier<byte[]> part, Deadline deadline) {
    byte[] mine;
    FluxCclException own = null;
    try {
      mine = framed(FINE, part.get());
    } catch (RuntimeException | Error e) {
      own = FluxCclException.from(e);
      mine = framed(ERROR, text(own));
    }
    FluxCclException failure = own;
    return exchangeAll(tag, mine, deadline)
        .handle(
            (all, broken) -> {
              if (failure != null) {
                throw failure;
              }
              if (broken != null) {
                throw FluxCclException.from(broken);
              }
              return IntStream.range(0, all.size())
                  .mapToObj(peer -> result(peer, operation, all.get(peer)))
                  .toList();
            });
  }

  static FluxCclException explain(
      FluxCclException failure, int peer, String operation, Deadline deadline) {
    if (failure instanceof Timeout) {
      int blamed = failure.rank() == FluxCclException.NO_RANK ? peer : failure.rank();
      return Timeout.of(
          blamed,
          "%s: rank %s did not answer within %s ms; does it queue the other half, with the same"
              + " tag, and call setup()? (%s)",
          operation,
          peer,
          deadline.timeout().toMillis(),
          failure.getMessage());
    }
    return failure.withMessage(operation + ": " + failure.getMessage());
  }

  private static int wireTag(Kind kind, int tag) {
    return RESERVED | (kind.ordinal() << 24) | tag;
  }

  private static byte[] framed(byte status, byte[] payload) {
    return new WireWriter().uint8(status).raw(payload).toBytes();
  }

  private static String textOf(byte[] message) {
    return new String(message, 1, message.length - 1, StandardCharsets.UTF_8);
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import io.fluxccl.Deadline;
import io.fluxccl.DeviceFailure;
import io.fluxccl.NativeLibrary;
import io.fluxccl.concurrent.Closing;
import io.fluxccl.concurrent.NonblockingThread;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.SecureRandom;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import org.slf4j.event.Level;

/**
 * Sends file descriptors of this process's memory to processes of the same user that know the
 * token. One server per process, on one daemon thread that blocks on no client. It runs from the
 * first {@link #offer} until the last {@link Offer#close}. It is no {@link
 * io.fluxccl.concurrent.AgentThread}, because it sleeps until a descriptor is readable.
 *
 * <p>An abstract socket has no file, so no file remains after a process is killed. It is visible
 * only within one network namespace.
 */
final class DescriptorServer {
  static final int TOKEN_LENGTH = 16;

  /**
   * Long enough for a process that is scheduled late, short enough to free the entries of silent
   * clients.
   */
  private static final int CLIENT_TIMEOUT_MILLIS = 2000;

  /** The server of this process. */
  static final DescriptorServer PROCESS = new DescriptorServer(CLIENT_TIMEOUT_MILLIS);

  /** Status of an answer: nothing is offered under that token. */
  static final int UNKNOWN = 1;

  /** Index of the first client, after the event and the listening socket. */
  private static final int FIRST_CLIENT = 2;

  private static final int MOST_CLIENTS = 64;

  /**
   * Time without accepting clients after accept has failed, for example without free descriptors.
   */
  private static final int PAUSE_MILLIS = 100;

  /** A descriptor that poll() ignores. */
  private static final int NOTHING = -1;

  private static final Logger LOG = LoggerFactory.getLogger(DescriptorServer.class);
  private static final SecureRandom RANDOM = new SecureRandom();

  private final int clientTimeoutMillis;
  private final Map<String, Offer> offers = new HashMap<>(); // guarded by this
  private Loop loop; // guarded by this; null while nothing is offered

  DescriptorServer(int clientTimeoutMillis) {
    this.clientTimeoutMillis = clientTimeoutMillis;
  }

  /**
   * One descriptor that clients can ask for.
   *
   * @param server the server that offers it
   * @param descriptor the descriptor that clients receive
   * @param token the token that a client must send
   * @param socketName the abstract name of the server's socket
   */
  record Offer(DescriptorServer server, int descriptor, byte[] token, String socketName)
      implements AutoCloseable {
    /**
     * Withdraws the offer and closes the descriptor. Descriptors that clients have received stay
     * open.
     */
    @Override
    public void close() {
      server.withdraw(this);
    }
  }

  /**
   * Offers a descriptor. The server takes ownership of it, even if this call fails.
   *
   * @param descriptor an open file descriptor
   * @return the offer, to be closed
   * @throws DeviceFailure if the server's socket cannot be created
   */
  Offer offer(int descriptor) {
    return offer(descriptor, random(TOKEN_LENGTH));
  }

  /** {@link #offer(int)} under a token of the caller's, as {@link #tokenOf} derives them. */
  synchronized Offer offer(int descriptor, byte[] token) {
    if (loop == null) {
      loop = Closing.onFailure(() -> DescriptorCalls.close(descriptor), this::start);
    }
    Offer offer = new Offer(this, descriptor, token, loop.socketName);
    offers.put(key(offer.token), offer);
    return offer;
  }

  /**
   * Derives the token of one of several descriptors from the token of the first.
   *
   * @param first the token of descriptor 0
   * @param piece which descriptor
   */
  static byte[] tokenOf(byte[] first, int piece) {
    ByteBuffer token = ByteBuffer.wrap(first.clone());
    int last = TOKEN_LENGTH - Integer.BYTES;
    token.putInt(last, token.getInt(last) + piece);
    return token.array();
  }

  /**
   * Requests a descriptor of another process's server. Blocks until the deadline at most.
   *
   * @param socketName the abstract name of the server's socket
   * @param token the token of the descriptor
   * @param deadline for the whole exchange
   * @return a descriptor that the caller closes
   * @throws DeviceFailure if the server has ended, refuses, belongs to another user or does not
   *     answer
   */
  static int request(String socketName, byte[] token, Deadline deadline) {
    NativeLibrary.require("mapping another process's VMM memory");
    byte[] name = socketName.getBytes(StandardCharsets.UTF_8);
    int client = DescriptorCalls.connect(name, millisLeft(deadline));
    if (client < 0) {
      throw failure(socketName, -client, problem(-client, deadline));
    }
    try {
      int[] status = new int[1];
      int result = DescriptorCalls.ask(client, token);
      if (result == 0) {
        result = DescriptorCalls.receiveDescriptor(client, millisLeft(deadline), status);
      }
      if (result < 0) {
        throw failure(socketName, -result, problem(-result, deadline));
      }
      if (status[0] != 0) {
        boolean unknown = status[0] == UNKNOWN;
        throw failure(
            socketName,
            0,
            unknown
                ? "the memory has been freed, or the token is not its own"
                : "it refuses with status " + status[0]);
      }
      return result;
    } finally {
      DescriptorCalls.close(client);
    }
  }

  private static int millisLeft(Deadline deadline) {
    return (int) Math.min(Integer.MAX_VALUE, deadline.remainingMillis());
  }

  private static DeviceFailure failure(String socketName, int errno, String reason) {
    return new DeviceFailure(
        errno,
        "DESCRIPTOR",
        "asking the memory's owner at @" + socketName + " for its descriptor failed: " + reason);
  }

  private static String problem(int errno, Deadline deadline) {
    return switch (errno) {
      case DescriptorCalls.ECONNREFUSED ->
          "no process listens there: the owner has ended, freed all its memory, or runs in"
              + " another network namespace (containers must share the host's)";
      case DescriptorCalls.ETIMEDOUT -> "no answer within " + deadline.timeout().toMillis() + " ms";
      case DescriptorCalls.EPERM -> "it is a process of another user";
      default -> NativeLibrary.errorText(errno);
    };
  }

  private Loop start() {
    NativeLibrary.require("sharing VMM memory");
    Loop started = new Loop();
    Closing.onFailure(
        started::closeAll, () -> new NonblockingThread(started, "fluxccl-descriptors").start());
    return started;
  }

  /** Answers a client; called from the server's thread. Sends without waiting. */
  private synchronized void answer(int client, byte[] token) {
    // The lock keeps the descriptor from being closed, and its number reused, while it is sent.
    Offer offer = offers.get(key(token));
    DescriptorCalls.answer(
        client, offer == null ? UNKNOWN : 0, offer == null ? -1 : offer.descriptor);
  }

  /** Returns whether the thread runs. */
  synchronized boolean isRunning() {
    return loop != null;
  }

  private synchronized void withdraw(Offer offer) {
    if (!offers.remove(key(offer.token), offer)) {
      return;
    }
    DescriptorCalls.close(offer.descriptor);
    if (offers.isEmpty() && loop != null) {
      loop.end();
      loop = null;
    }
  }

  /** Tokens are random and looked up by hash, so timing reveals nothing of their first bytes. */
  private static String key(byte[] token) {
    return HexFormat.of().formatHex(token);
  }

  private static byte[] random(int length) {
    byte[] random = new byte[length];
    RANDOM.nextBytes(random);
    return random;
  }

  /**
   * Waits for all clients at once, so that a slow or silent one delays no other, and drops clients
   * that have not asked in time.
   */
  private final class Loop implements Runnable {
    private final String socketName =
        "fluxccl-" + ProcessHandle.current().pid() + "-" + key(random(8));
    private final long clientTimeoutNanos = TimeUnit.MILLISECONDS.toNanos(clientTimeoutMillis);
    private final int[] descriptors = new int[FIRST_CLIENT + MOST_CLIENTS];
    private final boolean[] readable = new boolean[FIRST_CLIENT + MOST_CLIENTS];
    private final long[] acceptedAt = new long[FIRST_CLIENT + MOST_CLIENTS];
    private final byte[] token = new byte[TOKEN_LENGTH];
    private final int socket;
    private int count = FIRST_CLIENT;
    private boolean paused;
    private boolean warned;
    private volatile boolean ended;

    Loop() {
      int event = checked("eventfd", DescriptorCalls.newEvent());
      descriptors[0] = event;
      byte[] name = socketName.getBytes(StandardCharsets.UTF_8);
      socket =
          Closing.onFailure(
              () -> DescriptorCalls.close(event),
              () -> checked("listening on @" + socketName, DescriptorCalls.listen(name)));
    }

    private int checked(String call, int result) {
      if (result < 0) {
        throw new DeviceFailure(
            -result,
            "DESCRIPTOR",
            call + ", for sharing VMM memory, failed: " + NativeLibrary.errorText(-result));
      }
      return result;
    }

    /** Ends the thread, which closes its sockets. Does not wait for it. */
    void end() {
      ended = true;
      // The caller holds the server's lock, without which run() doesn't close the event.
      DescriptorCalls.signalEvent(descriptors[0]);
    }

    @Override
    public void run() {
      try {
        while (!ended) {
          // A pending client on a socket that is not accepted from would end every wait at once.
          descriptors[1] = paused || count == descriptors.length ? NOTHING : socket;
          int result = DescriptorCalls.awaitReadable(descriptors, readable, count, waitMillis());
          if (result < 0) {
            LOG.error("poll failed, VMM memory is not shared any more: {}", -result);
            return;
          }
          serveClients();
          paused = false;
          if (readable[1]) {
            acceptClients();
          }
        }
      } finally {
        // end() signals the event while it holds this lock; its number must not be reused before.
        synchronized (DescriptorServer.this) {
          if (loop == this) {
            loop = null; // the next offer starts another
          }
          closeAll();
        }
      }
    }

    private int waitMillis() {
      if (paused) {
        return PAUSE_MILLIS;
      }
      if (count == FIRST_CLIENT) {
        return -1;
      }
      // The first client is the oldest: they are kept in order of their arrival.
      long left = clientTimeoutNanos - (System.nanoTime() - acceptedAt[FIRST_CLIENT]);
      return (int) Math.max(0, TimeUnit.NANOSECONDS.toMillis(left) + 1);
    }

    private void serveClients() {
      long now = System.nanoTime();
      int kept = FIRST_CLIENT;
      for (int i = FIRST_CLIENT; i < count; i++) {
        boolean done = readable[i] && serve(descriptors[i]);
        if (done || now - acceptedAt[i] >= clientTimeoutNanos) {
          DescriptorCalls.close(descriptors[i]);
        } else {
          descriptors[kept] = descriptors[i];
          acceptedAt[kept++] = acceptedAt[i];
        }
      }
      count = kept;
    }

    private boolean serve(int client) {
      int result = DescriptorCalls.receiveToken(client, token);
      if (result > 0) {
        answer(client, token);
      }
      return result != 0;
    }

    private void acceptClients() {
      // Further clients wait in the backlog until others have finished or timed out. The bound on
      // the loop prevents a user that connects repeatedly from delaying other clients.
      for (int i = 0; i < MOST_CLIENTS && count < descriptors.length; i++) {
        int client = DescriptorCalls.accept(socket);
        if (client == -DescriptorCalls.EPERM) {
          LOG.atLevel(warned ? Level.DEBUG : Level.WARN)
              .log("turned away a process of another user at @{}", socketName);
          warned = true;
          continue;
        }
        if (client < 0) {
          paused = client != -DescriptorCalls.EAGAIN;
          return;
        }
        descriptors[count] = client;
        acceptedAt[count++] = System.nanoTime();
      }
    }

    private void closeAll() {
      DescriptorCalls.close(socket);
      DescriptorCalls.close(descriptors[0]);
      for (int i = FIRST_CLIENT; i < count; i++) {
        DescriptorCalls.close(descriptors[i]);
      }
    }
  }
}

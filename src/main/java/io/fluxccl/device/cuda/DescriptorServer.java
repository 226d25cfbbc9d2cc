package io.fluxccl.device.cuda;

import io.fluxccl.DeviceFailure;
import java.security.SecureRandom;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;

/**
 * Hands the file descriptors of this process's memory to processes of the same user that know the
 * token: one for the process. Runs, on one daemon thread that blocks on no client, from the first
 * {@link #offer} until the last {@link Offer#close}.
 *
 * <p>An abstract socket has no file, so a killed process leaves nothing behind; it is seen within
 * one network namespace only.
 */
final class DescriptorServer {
  static final int TOKEN_LENGTH = 16;

  /** Long enough for a process that is scheduled late, short enough to waste no place. */
  private static final int CLIENT_TIMEOUT_MILLIS = 2000;

  /** The server of this process. */
  static final DescriptorServer PROCESS = new DescriptorServer(CLIENT_TIMEOUT_MILLIS);

  /** Answers other than 0: nothing is offered under that token. */
  static final int UNKNOWN = 1;

  private static final SecureRandom RANDOM = new SecureRandom();

  private final int clientTimeoutMillis;
  private final Map<String, Offer> offers = new HashMap<>(); // guarded by this
  private DescriptorServerThread thread; // guarded by this; null while nothing is offered

  DescriptorServer(int clientTimeoutMillis) {
    this.clientTimeoutMillis = clientTimeoutMillis;
  }

  /** One descriptor that clients can ask for. */
  final class Offer implements AutoCloseable {
    private final int descriptor;
    private final byte[] token;
    private final String socketName;

    private Offer(int descriptor, byte[] token, String socketName) {
      this.descriptor = descriptor;
      this.token = token;
      this.socketName = socketName;
    }

    /** The abstract name of the socket to ask at. */
    String socketName() {
      return socketName;
    }

    /** The token to present there. */
    byte[] token() {
      return token.clone();
    }

    /** Takes it back and closes the descriptor; what clients have got already stays theirs. */
    @Override
    public void close() {
      withdraw(this);
    }
  }

  /**
   * Offers a descriptor, which belongs to the server from now on, even when this fails.
   *
   * @param descriptor an open file descriptor
   * @return the offer, to be closed
   * @throws DeviceFailure if there can be no socket
   */
  Offer offer(int descriptor) {
    synchronized (this) {
      try {
        if (thread == null) {
          thread = DescriptorServerThread.start(this, newSocketName(), clientTimeoutMillis);
        }
      } catch (RuntimeException | Error e) {
        DescriptorCalls.close(descriptor);
        throw e;
      }
      byte[] token = new byte[TOKEN_LENGTH];
      RANDOM.nextBytes(token);
      Offer offer = new Offer(descriptor, token, thread.socketName());
      offers.put(key(token), offer);
      return offer;
    }
  }

  /** Answers a client; called from the server's thread. Sends without waiting. */
  synchronized void answer(int client, byte[] token) {
    // The lock keeps the descriptor from being closed, and its number reused, while it is sent.
    Offer offer = offers.get(key(token));
    DescriptorCalls.answer(
        client, offer == null ? UNKNOWN : 0, offer == null ? -1 : offer.descriptor);
  }

  /** Whether the thread runs. */
  synchronized boolean isRunning() {
    return thread != null;
  }

  private synchronized void withdraw(Offer offer) {
    if (!offers.remove(key(offer.token), offer)) {
      return;
    }
    DescriptorCalls.close(offer.descriptor);
    if (offers.isEmpty() && thread != null) {
      thread.end();
      thread = null;
    }
  }

  /** A thread that ended by itself is forgotten: the next offer starts another. */
  synchronized void ended(DescriptorServerThread which) {
    if (thread == which) {
      thread = null;
    }
  }

  /** Tokens are random and looked up by hash, so timing reveals nothing of their first bytes. */
  private static String key(byte[] token) {
    return HexFormat.of().formatHex(token);
  }

  private static String newSocketName() {
    byte[] random = new byte[8];
    RANDOM.nextBytes(random);
    return "fluxccl-" + ProcessHandle.current().pid() + "-" + HexFormat.of().formatHex(random);
  }
}

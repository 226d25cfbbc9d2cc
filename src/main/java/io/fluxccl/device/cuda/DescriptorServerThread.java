package io.fluxccl.device.cuda;

import io.fluxccl.DeviceFailure;
import io.fluxccl.NativeLibrary;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.TimeUnit;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The loop of a {@link DescriptorServer}: waits for all its clients at once, so that a slow or
 * silent one delays no other, and drops clients that have not asked in time.
 */
final class DescriptorServerThread implements Runnable {
  private static final Logger LOG = LoggerFactory.getLogger(DescriptorServer.class);

  /** The event and the listening socket stand before the clients. */
  private static final int FIRST_CLIENT = 2;

  private static final int MOST_CLIENTS = 64;

  /** How long to accept no client after that failed for want of descriptors. */
  private static final int PAUSE_MILLIS = 100;

  /** poll() passes over it. */
  private static final int NOTHING = -1;

  private final DescriptorServer server;
  private final String socketName;
  private final long clientTimeoutNanos;
  private final int[] descriptors = new int[FIRST_CLIENT + MOST_CLIENTS];
  private final boolean[] readable = new boolean[FIRST_CLIENT + MOST_CLIENTS];
  private final long[] acceptedAt = new long[FIRST_CLIENT + MOST_CLIENTS];
  private final byte[] token = new byte[DescriptorServer.TOKEN_LENGTH];
  private final int socket;
  private int count = FIRST_CLIENT;
  private boolean paused;
  private volatile boolean ended;

  private DescriptorServerThread(
      DescriptorServer server, String socketName, int event, int socket, int clientTimeoutMillis) {
    this.server = server;
    this.socketName = socketName;
    this.clientTimeoutNanos = TimeUnit.MILLISECONDS.toNanos(clientTimeoutMillis);
    this.socket = socket;
    descriptors[0] = event;
  }

  static DescriptorServerThread start(
      DescriptorServer server, String socketName, int clientTimeoutMillis) {
    NativeLibrary.require("sharing VMM memory");
    int event = checked("eventfd", DescriptorCalls.newEvent());
    int socket;
    try {
      socket =
          checked(
              "listening on @" + socketName,
              DescriptorCalls.listen(socketName.getBytes(StandardCharsets.UTF_8)));
    } catch (DeviceFailure e) {
      DescriptorCalls.close(event);
      throw e;
    }
    DescriptorServerThread loop =
        new DescriptorServerThread(server, socketName, event, socket, clientTimeoutMillis);
    Thread thread = new Thread(loop, "fluxccl-descriptors");
    thread.setDaemon(true);
    try {
      thread.start();
    } catch (OutOfMemoryError e) {
      loop.closeAll();
      throw e;
    }
    return loop;
  }

  private static int checked(String call, int result) {
    if (result < 0) {
      throw new DeviceFailure(
          -result,
          "DESCRIPTOR",
          call + ", for sharing VMM memory, failed: " + NativeLibrary.errorText(-result));
    }
    return result;
  }

  String socketName() {
    return socketName;
  }

  /** Ends the thread, which closes its sockets; does not wait for it. */
  void end() {
    ended = true;
    // The caller holds the server's lock, without which run() doesn't close the event.
    DescriptorCalls.signalEvent(descriptors[0]);
  }

  @Override
  public void run() {
    try {
      while (!ended) {
        // A socket that is not accepted from would end every wait at once.
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
      synchronized (server) {
        server.ended(this);
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
      server.answer(client, token);
    }
    return result != 0;
  }

  private void acceptClients() {
    // Not more than fit: the others wait in the backlog, and their turn comes by the time-out.
    while (count < descriptors.length) {
      int client = DescriptorCalls.accept(socket);
      if (client == -DescriptorCalls.EPERM) {
        LOG.warn("turned away a process of another user at @{}", socketName);
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

package io.fluxccl.netplugin.ib;

import io.fluxccl.Closing;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.TransportFailure;
import io.fluxccl.transport.ib.LinkEvents;
import io.fluxccl.transport.ib.Verbs;
import io.fluxccl.transport.ib.VerbsLink;
import io.fluxccl.transport.ib.VerbsMemory;
import io.fluxccl.transport.ib.VerbsPort;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.security.MessageDigest;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CopyOnWriteArrayList;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * An open RDMA device of the plugin, for any thread. All listeners share its one address; the token
 * says whose a request is. What happens to connections is told to all by whoever looks.
 */
final class IbNetPort {
  private static final Logger LOG = LoggerFactory.getLogger(IbNetPort.class);

  private final IbNetDevice device;
  private final VerbsPort port;
  private final List<IbNetListenComm> expecting = new CopyOnWriteArrayList<>();

  /** Of all that opens, closes and looks. */
  private final Turn turn = new Turn();

  /** Those that are open; guarded by the turn, as what follows. */
  private final Set<VerbsMemory> memories = new HashSet<>();

  private boolean closed;

  IbNetPort(Verbs verbs, IbNetDevice device) {
    this.device = device;
    try {
      port = verbs.open(device.address(), this::admit);
    } catch (IOException e) {
      throw new TransportFailure(
          FluxCclException.NO_RANK, device.name() + " can't be opened: " + e.getMessage(), e);
    }
  }

  IbNetDevice device() {
    return device;
  }

  /** Where it listens. */
  int number() {
    return port.port();
  }

  void expect(IbNetListenComm listener) {
    expecting.add(listener);
  }

  void forget(IbNetListenComm listener) {
    expecting.remove(listener);
  }

  /**
   * The listener whose token that is; it expects nobody else then. Takes the same time however much
   * of the token is right. Called within a turn, by the verbs.
   */
  private LinkEvents admit(byte[] privateData) {
    byte[] token = SetupDescriptor.tokenOf(privateData);
    IbNetListenComm found = null;
    if (token != null) {
      for (IbNetListenComm listener : expecting) {
        if (MessageDigest.isEqual(listener.token(), token)) {
          found = listener;
        }
      }
    }
    if (found == null || !expecting.remove(found)) {
      LOG.info("rejected a stray connection to {}: it does not know a handle", device.name());
      return null;
    }
    return found.admit(SetupDescriptor.readGreeting(privateData));
  }

  /** Takes what happened to connections, unless another thread is about it. */
  void look() {
    if (!turn.tryTake()) {
      return;
    }
    try {
      if (!closed) {
        port.poll();
      }
    } catch (IOException e) {
      LOG.warn("{}: connection events can't be read: {}", device.name(), e.getMessage());
    } finally {
      turn.giveBack();
    }
  }

  /** Begins to connect, and tells the link's state of the link. */
  void connect(InetSocketAddress peer, byte[] greeting, LinkState state) throws IOException {
    turn.take();
    try {
      requireOpen();
      state.requested(port.connect(peer, greeting, state));
    } finally {
      turn.giveBack();
    }
  }

  /** Lets the device read and write memory. */
  VerbsMemory register(long address, int length) {
    turn.take();
    try {
      requireOpen();
      VerbsMemory memory = port.register(address, length);
      memories.add(memory);
      return memory;
    } catch (IOException e) {
      throw new TransportFailure(
          FluxCclException.NO_RANK,
          String.format(
              "%s can't register %d bytes: %s; is the limit of locked memory high enough"
                  + " (ulimit -l)?",
              device.name(), length, e.getMessage()),
          e);
    } finally {
      turn.giveBack();
    }
  }

  /** Ends a registration. Idempotent. */
  void close(VerbsMemory memory) {
    turn.take();
    try {
      if (memories.remove(memory)) {
        memory.close();
      }
    } finally {
      turn.giveBack();
    }
  }

  /** Closes a link, if there is one; the device does nothing for it any more. Idempotent. */
  void close(LinkState state) {
    turn.take();
    try {
      // Looked at within the turn: a request that is being admitted has its link at the end of it.
      VerbsLink link = state.link();
      if (!closed && link != null) {
        link.close();
      }
    } finally {
      turn.giveBack();
    }
  }

  /** How many registrations are open. For tests. */
  int openMemories() {
    turn.take();
    try {
      return memories.size();
    } finally {
      turn.giveBack();
    }
  }

  private void requireOpen() {
    if (closed) {
      throw new InvalidUsage("the network is closed");
    }
  }

  /** After all links were closed. */
  void close() {
    turn.take();
    try {
      if (!closed) {
        closed = true;
        Closing.all(() -> Closing.all(memories), memories::clear, port);
      }
    } finally {
      turn.giveBack();
    }
  }
}

package io.fluxccl.transport.ib;

import io.fluxccl.TransportFailure;
import io.fluxccl.device.host.HostMemory;
import java.io.IOException;
import java.lang.invoke.VarHandle;
import java.net.Inet4Address;
import java.net.InetSocketAddress;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.agrona.collections.Int2ObjectHashMap;

/**
 * Verbs over this process's memory, for machines without an RDMA device: what is written is there
 * at once, keys and ranges are checked as a device would, and who works with a queue pair from two
 * threads at once, or overflows it, is told.
 */
public final class FakeVerbs implements Verbs {
  private static final int LOCAL_PROTECTION_ERROR = 4;
  private static final int FLUSHED_WITH_ERROR = 5;
  private static final int REMOTE_ACCESS_ERROR = 10;

  private final AtomicInteger ports = new AtomicInteger(1000);
  private final AtomicInteger keys = new AtomicInteger(0x1000);
  private final Map<InetSocketAddress, FakePort> listening = new ConcurrentHashMap<>();
  private volatile boolean refusing;
  private volatile long unregistered;
  private volatile Error registrationError;
  private final AtomicReference<Error> postError = new AtomicReference<>();

  /** From here on whoever ends a registration is told that it failed. */
  public void refuseToDeregister() {
    refusing = true;
  }

  /** How many ports are open. */
  public int openPorts() {
    return listening.size();
  }

  /** From here on whoever registers so many bytes gets that, unless it is null. */
  void failToRegister(long size, Error error) {
    unregistered = size;
    registrationError = error;
  }

  /** The next request that is posted gets that. */
  void failNextPost(Error error) {
    postError.set(error);
  }

  @Override
  public VerbsPort open(Inet4Address address, VerbsPort.Requests requests) {
    InetSocketAddress place = new InetSocketAddress(address, ports.incrementAndGet());
    FakePort port = new FakePort(place, requests);
    listening.put(place, port);
    return port;
  }

  private record Region(long address, long length) {
    boolean covers(long from, long bytes) {
      return from >= address && from + bytes <= address + length;
    }
  }

  private final class FakePort implements VerbsPort {
    private final InetSocketAddress place;
    private final Requests requests;
    private final Queue<Runnable> events = new ConcurrentLinkedQueue<>();
    // Guarded by itself.
    private final Int2ObjectHashMap<Region> regions = new Int2ObjectHashMap<>();

    FakePort(InetSocketAddress place, Requests requests) {
      this.place = place;
      this.requests = requests;
    }

    boolean allows(int key, long address, int length) {
      synchronized (regions) {
        Region region = regions.get(key);
        return region != null && region.covers(address, length);
      }
    }

    @Override
    public int port() {
      return place.getPort();
    }

    @Override
    public VerbsMemory register(long address, int length) throws IOException {
      if (length < 1) {
        throw new IOException("ibv_reg_mr: Invalid argument (errno 22)");
      }
      Error error = registrationError;
      if (error != null && length == unregistered) {
        throw error;
      }
      int key = keys.incrementAndGet();
      synchronized (regions) {
        regions.put(key, new Region(address, length));
      }
      return new VerbsMemory() {
        @Override
        public int localKey() {
          return key;
        }

        @Override
        public int remoteKey() {
          return key;
        }

        @Override
        public void close() {
          synchronized (regions) {
            regions.remove(key);
          }
          if (refusing) {
            throw new TransportFailure(TransportFailure.NO_RANK, "memory can't be deregistered");
          }
        }
      };
    }

    @Override
    public VerbsLink connect(InetSocketAddress peer, byte[] privateData, LinkEvents told) {
      FakeLink link = new FakeLink(this, told);
      FakePort other = listening.get(peer);
      if (other == null) {
        events.add(() -> told.failed(link, "RDMA_CM_EVENT_UNREACHABLE with status -110"));
      } else {
        other.events.add(() -> other.request(link, privateData));
      }
      return link;
    }

    private void request(FakeLink from, byte[] privateData) {
      LinkEvents told = requests.admit(privateData);
      if (told == null) {
        from.port.events.add(
            () -> from.events.failed(from, "RDMA_CM_EVENT_REJECTED with status 28"));
        return;
      }
      FakeLink link = new FakeLink(this, told);
      link.peer = from;
      from.peer = link;
      told.requested(link);
      told.established(link);
      from.port.events.add(() -> from.events.established(from));
    }

    @Override
    public int poll() {
      int taken = 0;
      for (Runnable event = events.poll(); event != null; event = events.poll()) {
        event.run();
        taken++;
      }
      return taken;
    }

    @Override
    public void close() {
      listening.remove(place);
    }
  }

  private final class FakeLink implements VerbsLink {
    private final FakePort port;
    private final LinkEvents events;
    private final long[] ids;
    private final int[] statuses;
    private final long[] takenIds;
    private final int[] takenStatuses;
    private final AtomicBoolean used = new AtomicBoolean();
    private volatile FakeLink peer;
    private volatile boolean closed;

    // Completions that were not taken: a ring.
    private int first;
    private int count;

    /** Requests since the last completion that was taken, which are in the send queue. */
    private long posted;

    private long retired;
    private boolean failed;

    FakeLink(FakePort port, LinkEvents events) {
      this.port = port;
      this.events = events;
      int size = events.options().sendQueueSize();
      ids = new long[size];
      statuses = new int[size];
      takenIds = new long[events.options().pollBatch()];
      takenStatuses = new int[takenIds.length];
    }

    @Override
    public int inlineLimit() {
      return 64;
    }

    private void enter() {
      if (!used.compareAndSet(false, true)) {
        throw new IllegalStateException("two threads work with one queue pair");
      }
    }

    @Override
    public void postWrite(
        long id,
        int flags,
        long address,
        int length,
        int localKey,
        long remoteAddress,
        int remoteKey)
        throws IOException {
      enter();
      try {
        if (posted - retired == ids.length) {
          throw new IOException("ibv_post_send: Cannot allocate memory (errno 12)");
        }
        Error error = postError.getAndSet(null);
        if (error != null) {
          throw error;
        }
        posted++;
        int status = write(flags, address, length, localKey, remoteAddress, remoteKey);
        failed |= status != 0;
        if (status != 0 || (flags & SIGNALED) != 0) {
          int place = (first + count++) % ids.length;
          ids[place] = id;
          statuses[place] = status;
        }
      } finally {
        used.set(false);
      }
    }

    private int write(
        int flags, long address, int length, int localKey, long remoteAddress, int remoteKey) {
      FakeLink target = peer;
      if (failed || target == null || target.closed) {
        return FLUSHED_WITH_ERROR;
      }
      if ((flags & INLINE) == 0 && !port.allows(localKey, address, length)) {
        return LOCAL_PROTECTION_ERROR;
      }
      if (!target.port.allows(remoteKey, remoteAddress, length)) {
        return REMOTE_ACCESS_ERROR;
      }
      if (length == Long.BYTES && (remoteAddress & 7) == 0) {
        HostMemory.putLongRelease(remoteAddress, HostMemory.getLong(address));
      } else {
        HostMemory.copy(remoteAddress, address, length);
        VarHandle.releaseFence(); // before the write of whoever posts next
      }
      return 0;
    }

    @Override
    public int poll() {
      enter();
      try {
        int taken = Math.min(count, takenIds.length);
        for (int i = 0; i < taken; i++) {
          takenIds[i] = ids[first];
          takenStatuses[i] = statuses[first];
          retired = ids[first] + 1;
          first = (first + 1) % ids.length;
        }
        count -= taken;
        return taken;
      } finally {
        used.set(false);
      }
    }

    @Override
    public long completedId(int index) {
      return takenIds[index];
    }

    @Override
    public int completedStatus(int index) {
      return takenStatuses[index];
    }

    @Override
    public void close() {
      if (closed) {
        return;
      }
      closed = true;
      FakeLink other = peer;
      if (other != null) {
        other.port.events.add(
            () -> {
              if (!other.closed) {
                other.events.disconnected(other);
              }
            });
      }
    }
  }
}

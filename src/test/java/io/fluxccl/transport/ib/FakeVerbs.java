// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.ib;

import io.fluxccl.TransportFailure;
import io.fluxccl.device.host.HostMemory;
import io.fluxccl.transport.RdmaOptions;
import java.io.IOException;
import java.lang.invoke.VarHandle;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayDeque;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Queue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.agrona.collections.Int2ObjectHashMap;
import org.agrona.collections.IntArrayQueue;
import org.agrona.collections.LongArrayQueue;

/**
 * Verbs over this process's memory, for machines without an RDMA device: writes take effect at
 * once, and keys and ranges are checked as by a device. Use of a queue pair by two threads at once,
 * and its overflow, fail.
 */
public final class FakeVerbs implements Verbs {
  /** The most completions that one poll of a new link takes. */
  volatile int completionsAtOnce = 32;

  private static final int LOCAL_PROTECTION_ERROR = 4;
  private static final int FLUSHED_WITH_ERROR = 5;
  private static final int REMOTE_ACCESS_ERROR = 10;
  private static final int RETRIES_EXCEEDED = 12;

  /** The device, which peers reach by one GID. */
  static final RdmaDevices.Device DEVICE =
      new RdmaDevices.Device("fake0", 1, true, "Ethernet", List.of(gid()), null);

  private final AtomicInteger numbers = new AtomicInteger(0x100);
  private final AtomicInteger keys = new AtomicInteger(0x1000);
  private final Map<Integer, FakeLink> links = new ConcurrentHashMap<>();
  private final AtomicInteger dmaBufs = new AtomicInteger();
  private volatile boolean refusing;
  private volatile boolean takesDmaBufs;
  private volatile long unregistered;
  private volatile Error registrationError;
  private final AtomicReference<Error> postError = new AtomicReference<>();

  /** Makes later deregistrations fail. */
  public void refuseToDeregister() {
    refusing = true;
  }

  private static Gid gid() {
    byte[] bytes = new byte[Gid.LENGTH];
    bytes[0] = (byte) 0xfe;
    bytes[1] = (byte) 0x80;
    bytes[15] = 1;
    return new Gid(0, Gid.Kind.ROCE_V2_LINK_LOCAL, bytes);
  }

  /** Number of open queue pairs. */
  int openLinks() {
    return links.size();
  }

  /** Number of memories that were registered by a dma-buf. */
  int dmaBufs() {
    return dmaBufs.get();
  }

  /** Sets whether dma-bufs are accepted. Initially they are not, as by Soft-RoCE. */
  void takeDmaBufs(boolean takes) {
    takesDmaBufs = takes;
  }

  /** Makes later registrations of {@code size} bytes throw the error; null ends that. */
  void failToRegister(long size, Error error) {
    unregistered = size;
    registrationError = error;
  }

  /** Makes the next post throw the error. */
  void failNextPost(Error error) {
    postError.set(error);
  }

  @Override
  public List<String> deviceNames() {
    return List.of(DEVICE.name());
  }

  @Override
  public Verbs.Port open(String device, int port) {
    return new FakePort();
  }

  private record Region(long address, long length) {
    boolean covers(long from, long bytes) {
      return from >= address && from + bytes <= address + length;
    }
  }

  /** One key, which its owner and its peers use. */
  private record Key(FakePort port, int localKey, int remoteKey) implements Verbs.Memory {
    @Override
    public void close() {
      if (port.remove(localKey)) {
        throw new TransportFailure(TransportFailure.NO_RANK, "memory can't be deregistered");
      }
    }
  }

  private final class FakePort implements Verbs.Port {
    // Guarded by itself.
    private final Int2ObjectHashMap<Region> regions = new Int2ObjectHashMap<>();

    /** Returns whether that is reported as a failure. */
    boolean remove(int key) {
      synchronized (regions) {
        regions.remove(key);
      }
      return refusing;
    }

    boolean allows(int key, long address, int length) {
      synchronized (regions) {
        Region region = regions.get(key);
        return region != null && region.covers(address, length);
      }
    }

    @Override
    public Attributes attributes() {
      return new Attributes(true, 0, 3);
    }

    @Override
    public Verbs.Memory registerDmaBuf(int descriptor, long offset, long address, int length)
        throws IOException {
      if (!takesDmaBufs) {
        throw new IOException("ibv_reg_dmabuf_mr: Operation not supported (errno 95)");
      }
      if (!Files.exists(Path.of("/proc/self/fd/" + descriptor)) || offset < 0) {
        throw new IOException("ibv_reg_dmabuf_mr: Bad file descriptor (errno 9)");
      }
      dmaBufs.incrementAndGet();
      return register(address, length);
    }

    @Override
    public Optional<String> refusesDmaBufsBecause() {
      return takesDmaBufs ? Optional.empty() : Optional.of("fake0 takes no dma-bufs");
    }

    @Override
    public Verbs.Memory register(long address, int length) throws IOException {
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
      return new Key(this, key, key);
    }

    @Override
    public Verbs.Link createLink(RdmaOptions options) {
      FakeLink link = new FakeLink(this, options);
      links.put(link.number, link);
      return link;
    }

    @Override
    public void close() {}
  }

  /** A write whose target is not connected yet: the device sends it again and again. */
  private record Unsent(
      long id, int flags, long address, int length, int localKey, long remote, int remoteKey) {}

  private final class FakeLink implements Verbs.Link {
    private final FakePort port;
    private final int number = numbers.incrementAndGet();
    private final int size;
    // Completions that were not taken.
    private final LongArrayQueue ids = new LongArrayQueue();
    private final IntArrayQueue statuses = new IntArrayQueue();
    private final long[] takenIds;
    private final int[] takenStatuses;
    private final AtomicBoolean used = new AtomicBoolean();
    private final Queue<Unsent> unsent = new ArrayDeque<>();
    private volatile Verbs.QueuePairPath path;
    private FakeLink peer;
    private volatile boolean closed;

    /** Requests since the last completion that was taken, which are in the send queue. */
    private long posted;

    private long retired;
    private boolean failed;

    FakeLink(FakePort port, RdmaOptions options) {
      this.port = port;
      size = options.sendQueueSize();
      takenIds = new long[completionsAtOnce];
      takenStatuses = new int[takenIds.length];
    }

    @Override
    public int number() {
      return number;
    }

    @Override
    public void connect(Verbs.QueuePairPath to) throws IOException {
      if (to.mtu() != 3 || to.ownGidIndex() != 0 || to.peerGid().length != Gid.LENGTH) {
        throw new IOException("ibv_modify_qp(RTR): Invalid argument (errno 22)");
      }
      peer = links.get(to.queuePair());
      path = to;
    }

    /** Whether the peer's device still waits for its queue pair to be connected. */
    private boolean isPeerLate() {
      return peer != null && !peer.closed && peer.path == null;
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
        if (posted - retired == size) {
          throw new IOException("ibv_post_send: Cannot allocate memory (errno 12)");
        }
        Error error = postError.getAndSet(null);
        if (error != null) {
          throw error;
        }
        posted++;
        if (unsent.isEmpty() && !isPeerLate()) {
          int status = write(flags, address, length, localKey, remoteAddress, remoteKey);
          completed(id, flags, status);
        } else {
          unsent.add(new Unsent(id, flags, address, length, localKey, remoteAddress, remoteKey));
        }
      } finally {
        used.set(false);
      }
    }

    private void send() {
      while (!unsent.isEmpty() && !isPeerLate()) {
        Unsent next = unsent.poll();
        int status =
            write(
                next.flags, next.address, next.length, next.localKey, next.remote, next.remoteKey);
        completed(next.id, next.flags, status);
      }
    }

    private void completed(long id, int flags, int status) {
      failed |= status != 0;
      if (status != 0 || (flags & SIGNALED) != 0) {
        ids.addLong(id);
        statuses.addInt(status);
      }
    }

    private int write(
        int flags, long address, int length, int localKey, long remoteAddress, int remoteKey) {
      FakeLink target = peer;
      if (failed) {
        return FLUSHED_WITH_ERROR;
      }
      if (target == null || target.closed || !target.expects(this)) {
        return RETRIES_EXCEEDED;
      }
      if ((flags & INLINE) == 0 && !port.allows(localKey, address, length)) {
        return LOCAL_PROTECTION_ERROR;
      }
      if (!target.port.allows(remoteKey, remoteAddress, length)) {
        return REMOTE_ACCESS_ERROR;
      }
      place(remoteAddress, address, length);
      return 0;
    }

    /** Whether this queue pair is connected to the other one, and expects its packets. */
    private boolean expects(FakeLink other) {
      return path.queuePair() == other.number
          && path.receivePacket() == other.path.sendPacket()
          && path.sendPacket() == other.path.receivePacket();
    }

    private static void place(long remoteAddress, long address, int length) {
      if (length == Long.BYTES && (remoteAddress & 7) == 0) {
        HostMemory.putLongRelease(remoteAddress, HostMemory.getLong(address));
      } else {
        HostMemory.copy(remoteAddress, address, length);
        VarHandle.releaseFence(); // before the next write that is posted
      }
    }

    @Override
    public int poll() {
      enter();
      try {
        send();
        int taken = Math.min(ids.size(), takenIds.length);
        for (int i = 0; i < taken; i++) {
          takenIds[i] = ids.pollLong();
          takenStatuses[i] = statuses.pollInt();
          retired = takenIds[i] + 1;
        }
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
      closed = true;
      links.remove(number);
    }
  }
}

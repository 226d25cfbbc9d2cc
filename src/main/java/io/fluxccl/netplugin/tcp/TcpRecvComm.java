package io.fluxccl.netplugin.tcp;

import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.TransportFailure;
import io.fluxccl.netplugin.BodyPlace;
import io.fluxccl.netplugin.NetMemory;
import io.fluxccl.netplugin.NetRecvComm;
import io.fluxccl.netplugin.NetRequest;
import io.fluxccl.wire.RawView;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import org.agrona.BufferUtil;
import org.agrona.UnsafeApi;

/**
 * The receiving end of a connection. Headers and short messages are read through a small staging
 * buffer, several in one system call. The rest of a long message is read directly into its
 * destination. While no receive is posted, this end reads nothing: data waits in the kernel, and
 * then at the sender.
 */
final class TcpRecvComm extends TcpComm implements NetRecvComm {
  private static final int STAGING_LENGTH = 16 * 1024;

  private final ByteBuffer staging = WireDescriptor.buffer(STAGING_LENGTH);
  private final long stagingAddress = BufferUtil.address(staging);
  private final RawView view = new RawView();
  private final ByteBuffer[] scattered = {view.buffer(), staging};
  private final long[] room = new long[RING];

  /** The start of the unused bytes in the staging buffer; they end at the buffer's position. */
  private int used;

  /** Whether the socket is empty until the waiter reports it as ready. */
  private boolean drained;

  /** The message that is arriving on stream 0, or null between messages. */
  private TcpRequest current;

  /** Whether a body follows the bytes that are arriving. */
  private boolean bodyDue;

  /** Whether the head of {@link #current} has arrived, and its body has no place yet. */
  private boolean placing;

  private long currentAddress;
  private long currentLeft;

  /**
   * The failure after the sender has closed, or null. Parts on the data streams may still arrive.
   */
  private FluxCclException ended;

  TcpRecvComm(TcpNetPlugin plugin, int device, String peer, TcpSocket[] sockets) {
    super(plugin, device, peer, sockets, false);
  }

  @Override
  String operation() {
    return "receive from";
  }

  @Override
  public NetRequest irecv(long address, long size, int tag, NetMemory memory) {
    return receive(address, size, tag, memory, System.nanoTime());
  }

  @Override
  public NetRequest irecv(long head, long size, NetMemory memory, BodyPlace place) {
    TcpRequest request = receive(head, size, 0, memory, 0);
    request.placedBy(place);
    return request;
  }

  private TcpRequest receive(long address, long size, int tag, NetMemory memory, long nowNanos) {
    checkUsable(size);
    TcpMemory.check(memory, this, address, Math.min(size, 1));
    int slot = tail & (RING - 1);
    TcpRequest request = post(address, size, tag, nowNanos);
    room[slot] = size == 0 ? 0 : Math.min(size, ((TcpMemory) memory).bytesFrom(address));
    return request;
  }

  @Override
  public NetRequest irecv(int n, long[] addresses, long[] sizes, int[] tags, NetMemory[] memories) {
    if (n != 1) {
      throw new InvalidUsage("TCP receives no groups: n=" + n + ", maxRecvs=1");
    }
    return irecv(addresses[0], sizes[0], tags[0], memories[0]);
  }

  @Override
  public NetRequest iflush(int n, long[] addresses, long[] sizes, NetMemory[] memories) {
    checkUsable(0);
    // Host memory needs no flush.
    return null;
  }

  @Override
  FluxCclException failure() {
    FluxCclException known = super.failure();
    return known != null || ended == null || isAnyArriving() ? known : ended;
  }

  @Override
  public void ready() {
    drained = false;
  }

  @Override
  public int interest() {
    boolean waits = !placing && (current != null || head != tail);
    return waits && ended == null && super.failure() == null ? SelectionKey.OP_READ : 0;
  }

  @Override
  void progress() {
    try {
      while (super.failure() == null && ended == null && step()) {}
    } catch (EndOfStream e) {
      if (current != null) {
        // The rest of the message never arrives; parts on the data streams may still arrive.
        current.tears();
        current = null;
      }
      ended = lost(e);
    } catch (IOException e) {
      fail(lost(e));
    }
  }

  /**
   * Processes bytes that were read, or else reads more. Returns false if there is nothing to
   * process or to read.
   */
  private boolean step() throws IOException {
    if (placing) {
      return place();
    }
    if (current != null) {
      return staging.position() > used ? useStaged() : readOn();
    }
    if (head == tail) {
      return false;
    }
    if (staging.position() - used >= WireDescriptor.HEADER_LENGTH) {
      begin();
      return true;
    }
    return fill();
  }

  private boolean fill() throws IOException {
    if (used > 0) {
      staging.limit(staging.position()).position(used);
      staging.compact();
      used = 0;
    }
    if (drained) {
      return false;
    }
    int room = staging.remaining();
    int n = socket.read(staging);
    // Set only between messages: within a message, the rest usually arrives during the poll.
    drained = n < room && isWatched();
    return wasRead(n);
  }

  private static boolean wasRead(long n) throws EndOfStream {
    if (n < 0) {
      throw new EndOfStream();
    }
    return n > 0;
  }

  private boolean useStaged() {
    int n = (int) Math.min(currentLeft, staging.position() - used);
    UnsafeApi.copyMemory(stagingAddress + used, currentAddress, n);
    used += n;
    arrived(n);
    return true;
  }

  /** Reads the rest of the message in place, and the bytes behind it into the staging buffer. */
  private boolean readOn() throws IOException {
    staging.clear();
    used = 0;
    view.point(currentAddress, currentLeft);
    long wanted = currentLeft;
    boolean inOneRead = wanted <= RawView.MAX_LENGTH;
    long n = inOneRead ? socket.read(scattered) : socket.read(scattered[0]);
    boolean any = wasRead(n);
    arrived(Math.min(n, wanted));
    return any;
  }

  private void arrived(long n) {
    currentAddress += n;
    currentLeft -= n;
    if (currentLeft == 0 && bodyDue) {
      bodyDue = false;
      placing = true;
    } else if (currentLeft == 0) {
      TcpRequest request = current;
      current = null;
      request.partDone();
    }
  }

  /**
   * Asks for the address of the body whose head has arrived. Returns false if there is none yet.
   */
  private boolean place() {
    TcpRequest request = current;
    long address = request.place().addressOf(request.address(), request.size(), request.bodySize());
    if (address == BodyPlace.NOT_YET) {
      return false;
    }
    placing = false;
    request.body(address, request.bodySize());
    if (isSpread(request)) {
      current = null;
      spread(request);
      request.partDone();
    } else {
      currentAddress = address;
      currentLeft = request.bodySize();
    }
    return true;
  }

  /** Parses a header and starts the message for the receive at the head of the queue. */
  private void begin() {
    long size = WireDescriptor.sizeAt(staging, used);
    long bodySize = WireDescriptor.bodySizeAt(staging, used);
    int tag = WireDescriptor.tagAt(staging, used);
    used += WireDescriptor.HEADER_LENGTH;
    int slot = head & (RING - 1);
    TcpRequest request = queue[slot];
    if (size < 0 || bodySize < 0 || bodySize > 0 && request.place() == null) {
      refuse(
          new TransportFailure(
              FluxCclException.NO_RANK, operation() + " " + peer() + ": it sent no message"));
      return;
    }
    // Tags are not compared: they identify the messages of a group, and TCP has no groups.
    if (size > room[slot]) {
      refuse(
          new InvalidUsage(
              String.format(
                  "%s %s: it sent %d bytes (tag %d) to a receive of %d bytes (tag %d)",
                  operation(), peer(), size, tag, room[slot], request.tag())));
      return;
    }
    queue[slot] = null;
    head++;
    request.arrives(size, bodySize);
    bodyDue = bodySize > 0;
    if (!bodyDue && isSpread(request)) {
      spread(request);
      request.partDone();
      return;
    }
    current = request;
    currentAddress = request.address();
    currentLeft = size;
    arrived(0);
  }

  private void refuse(FluxCclException reason) {
    fail(reason);
    try {
      socket.write(WireDescriptor.error(reason));
    } catch (IOException e) {
      // The peer is gone, and needs no reason.
    }
  }
}

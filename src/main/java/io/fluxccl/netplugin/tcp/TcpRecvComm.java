// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.tcp;

import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.TransportFailure;
import io.fluxccl.netplugin.BodyAddressResolver;
import io.fluxccl.netplugin.NetMemory;
import io.fluxccl.netplugin.NetMisuse;
import io.fluxccl.netplugin.NetRecvComm;
import io.fluxccl.netplugin.NetRequest;
import io.fluxccl.wire.RawView;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.util.ArrayList;
import java.util.List;
import org.agrona.BufferUtil;
import org.agrona.UnsafeApi;

/**
 * The receiving end of a connection. Headers and short messages are read through a small staging
 * buffer, several in one system call. The rest of a long message is read directly into its
 * destination. While no receive is posted, this end reads nothing: data waits in the kernel, and
 * then at the sender.
 *
 * <p>A message matches the oldest receive with its tag. If none is posted but others are, the
 * message is kept ({@link UnexpectedMessages}), and this end begins to notify the sender of posted
 * receives ({@link PostedReceives}): their messages may follow unexpected ones.
 */
final class TcpRecvComm extends TcpComm implements NetRecvComm {
  private static final int STAGING_LENGTH = 16 * 1024;

  private final ByteBuffer staging = WireDescriptor.buffer(STAGING_LENGTH);
  private final long stagingAddress = BufferUtil.address(staging);
  private final RawView view = new RawView();
  private final ByteBuffer[] scattered = {view.buffer(), staging};
  private final List<TcpGroup> groups = new ArrayList<>();
  private final PostedReceives posted = new PostedReceives();
  private final UnexpectedMessages early = new UnexpectedMessages(this);

  /** The start of the unused bytes in the staging buffer; they end at the buffer's position. */
  private int used;

  /** Whether the socket is empty until the waiter reports it as ready. */
  private boolean drained;

  /** The message that is arriving on stream 0, or null between messages. */
  private TcpRequest current;

  /** Whether a body follows the bytes that are arriving. */
  private boolean bodyDue;

  /** Whether the head of {@link #current} has arrived, and its body has no address yet. */
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
    check(address, size, tag, memory);
    checkFree();
    TcpRequest request = receive(address, size, tag, memory, System.nanoTime());
    begun();
    tellSender();
    return request;
  }

  @Override
  public NetRequest irecv(long head, long size, NetMemory memory, BodyAddressResolver place) {
    check(head, size, 0, memory);
    checkFree();
    TcpRequest request = prepare(head, size, 0, memory, 0);
    request.placedBy(place);
    enqueue(request);
    begun();
    return request;
  }

  private void check(long address, long size, int tag, NetMemory memory) {
    if (early.isEmpty() || early.size(tag) < 0) {
      checkUsable(size);
    } else {
      // The message arrived before the sender left.
      checkOpen(size);
      FluxCclException known = super.failure();
      if (known != null) {
        throw known;
      }
    }
    TcpMemory.check(memory, this, address, Math.min(size, 1));
  }

  private TcpRequest prepare(long address, long size, int tag, NetMemory memory, long nowNanos) {
    TcpRequest request = post(address, size, tag, nowNanos);
    request.limitTo(size == 0 ? 0 : Math.min(size, ((TcpMemory) memory).bytesFrom(address)));
    return request;
  }

  private TcpRequest receive(long address, long size, int tag, NetMemory memory, long nowNanos) {
    TcpRequest request = prepare(address, size, tag, memory, nowNanos);
    posted.posted(tag);
    long came = early.isEmpty() ? -1 : early.size(tag);
    if (came < 0) {
      enqueue(request);
    } else if (came > request.room()) {
      refuse(tooLong(came, tag, request));
    } else {
      early.giveTo(request);
    }
    return request;
  }

  private void tellSender() {
    if (posted.hasNotices()) {
      progress();
    }
  }

  @Override
  public NetRequest irecv(int n, long[] addresses, long[] sizes, int[] tags, NetMemory[] memories) {
    if (n < 1 || n > MAX_GROUP) {
      throw NetMisuse.of("receive from %s: n=%s; give 1 to %s", peer(), n, MAX_GROUP);
    }
    for (int i = 0; i < n; i++) {
      check(addresses[i], sizes[i], tags[i], memories[i]);
    }
    checkFree();
    TcpGroup group = TcpGroup.begin(groups, this);
    long now = System.nanoTime();
    for (int i = 0; i < n; i++) {
      group.add(receive(addresses[i], sizes[i], tags[i], memories[i], now));
    }
    begun();
    tellSender();
    return group;
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
    if (ended != null || super.failure() != null) {
      return 0;
    }
    return (waits ? SelectionKey.OP_READ : 0) | (posted.hasNotices() ? SelectionKey.OP_WRITE : 0);
  }

  @Override
  String waitsFor() {
    return early.isEmpty() ? "" : "; it sent messages with tags " + early.tags();
  }

  @Override
  void progress() {
    try {
      while (super.failure() == null && ended == null && step()) {}
      if (posted.hasNotices() && super.failure() == null && ended == null) {
        posted.send(socket);
      }
    } catch (EndOfStream e) {
      if (current != null) {
        // The rest of the message never arrives; parts on the data streams may still arrive.
        current.tears();
        early.tears(current);
        current = null;
      }
      ended = lost(e);
    } catch (IOException e) {
      fail(lost(e));
    }
    if (!early.isEmpty()) {
      early.settle();
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
      return begin();
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

  /** Reads the rest of the message in place, and the bytes after it into the staging buffer. */
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
    if (!hasRoomFor(request.bodySize())) {
      return false;
    }
    long address = request.place().addressOf(request.address(), request.size(), request.bodySize());
    if (address == BodyAddressResolver.NOT_YET) {
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

  /**
   * Parses a header and starts the message for the oldest receive with its tag. Returns false if
   * the message has to wait for the data streams.
   */
  private boolean begin() {
    long size = WireDescriptor.sizeAt(staging, used);
    long bodySize = WireDescriptor.bodySizeAt(staging, used);
    if (size < 0 || bodySize < 0) {
      return refuse("it sent no message");
    }
    if (bodySize == 0 && !hasRoomFor(size)) {
      return false;
    }
    int tag = WireDescriptor.hasBodyAt(staging, used) ? 0 : WireDescriptor.tagAt(staging, used);
    used += WireDescriptor.HEADER_LENGTH;
    TcpRequest request = take(tag);
    if (bodySize > 0 && (request == null || request.place() == null)) {
      return refuse("it sent no message");
    }
    if (request != null && size > request.room()) {
      return refuse(tooLong(size, tag, request));
    }
    if (request == null) {
      posted.begin();
      request = early.begin(tag, size);
      if (request == null) {
        return refuse(
            "no memory is left for " + size + " bytes of an unexpected message, tag " + tag);
      }
    } else {
      request.arrives(size, bodySize);
    }
    arrive(request, size, bodySize);
    return true;
  }

  private void arrive(TcpRequest request, long size, long bodySize) {
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

  /** Removes the oldest receive with a tag from the queue and returns it, or null. */
  private TcpRequest take(int tag) {
    for (int i = head; i != tail; i++) {
      TcpRequest each = queue[i & (RING - 1)];
      if (each != null && each.tag() == tag) {
        queue[i & (RING - 1)] = null;
        while (head != tail && queue[head & (RING - 1)] == null) {
          head++;
        }
        return each;
      }
    }
    return null;
  }

  private InvalidUsage tooLong(long size, int tag, TcpRequest request) {
    return InvalidUsage.of(
        "%s %s: it sent %d bytes (tag %d) to a receive of %d bytes (tag %d)",
        operation(), peer(), size, tag, request.room(), request.tag());
  }

  private boolean refuse(String what) {
    return refuse(
        new TransportFailure(FluxCclException.NO_RANK, operation() + " " + peer() + ": " + what));
  }

  /** Fails the comm and sends the reason to the sender; returns true. */
  private boolean refuse(FluxCclException reason) {
    fail(reason);
    try {
      posted.send(socket);
      if (!posted.hasNotices()) {
        socket.write(WireDescriptor.error(reason));
      }
    } catch (IOException e) {
      // The peer has disconnected, and can't receive the reason.
    }
    return true;
  }
}

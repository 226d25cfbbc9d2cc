// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.tcp;

import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.TransportFailure;
import io.fluxccl.netplugin.NetMemory;
import io.fluxccl.netplugin.NetMisuse;
import io.fluxccl.netplugin.NetRecvComm;
import io.fluxccl.netplugin.NetRequest;
import io.fluxccl.transport.tcp.EndOfStream;
import io.fluxccl.transport.tcp.TcpReads;
import io.fluxccl.transport.tcp.TcpSocket;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import org.agrona.BufferUtil;

/**
 * The receiving end of a connection. While no receive is posted, this end reads nothing: data waits
 * in the kernel, and then at the sender.
 *
 * <p>A message matches the oldest receive with its tag. If none is posted but others are, the
 * message is kept ({@link UnexpectedMessages}), and this end begins to notify the sender of posted
 * receives ({@link PostedReceives}): their messages may follow unexpected ones.
 */
final class TcpRecvComm extends TcpComm implements NetRecvComm {
  private final TcpReads reads = new TcpReads();
  private final ByteBuffer header = WireDescriptor.buffer(WireDescriptor.HEADER_LENGTH);
  private final long headerAddress = BufferUtil.address(header);
  private final List<TcpGroup> groups = new ArrayList<>();
  private final PostedReceives posted = new PostedReceives();
  private final UnexpectedMessages early = new UnexpectedMessages(this);

  /** The bytes of the next header that have arrived. */
  private int had;

  /** The message that is arriving on stream 0, or null between messages. */
  private TcpRequest current;

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

  private TcpRequest receive(long address, long size, int tag, NetMemory memory, long nowNanos) {
    TcpRequest request = post(address, size, tag, nowNanos);
    request.limitTo(size == 0 ? 0 : Math.min(size, ((TcpMemory) memory).bytesFrom(address)));
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
    if (current != null) {
      long n = reads.move(socket, currentAddress, currentLeft);
      arrived(n);
      return n > 0;
    }
    if (head == tail) {
      return false;
    }
    if (had < WireDescriptor.HEADER_LENGTH) {
      int n = (int) reads.move(socket, headerAddress + had, WireDescriptor.HEADER_LENGTH - had);
      had += n;
      return n > 0;
    }
    return begin();
  }

  private void arrived(long n) {
    currentAddress += n;
    currentLeft -= n;
    if (currentLeft == 0) {
      TcpRequest request = current;
      current = null;
      request.partDone();
    }
  }

  /**
   * Parses a header and starts the message for the oldest receive with its tag. Returns false if
   * the message has to wait for the data streams.
   */
  private boolean begin() {
    long size = WireDescriptor.sizeAt(header, 0);
    if (size < 0) {
      return refuse("it sent no message");
    }
    if (!hasRoomFor(size)) {
      return false;
    }
    int tag = WireDescriptor.tagAt(header, 0);
    had = 0;
    TcpRequest request = take(tag);
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
      request.arrives(size);
    }
    arrive(request, size);
    return true;
  }

  private void arrive(TcpRequest request, long size) {
    if (isSpread(size)) {
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

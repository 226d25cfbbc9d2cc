package io.fluxccl.netplugin.ib;

import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.netplugin.NetMemory;
import io.fluxccl.netplugin.NetRequest;
import io.fluxccl.netplugin.NetSendComm;
import io.fluxccl.transport.ib.VerbsMemory;
import java.io.IOException;

/**
 * The end that sends. A message goes straight to where its receive wants it, once that has offered
 * room, and a report goes behind it; a send is done when the peer has the report.
 */
final class IbNetSendComm extends IbNetComm implements NetSendComm {
  private final int maxWrite;

  /** How many posts there were up to a message's report; message n modulo their number. */
  private final long[] ends = new long[Mailbox.PLACES];

  /** The first message whose report is not posted. */
  private long launched;

  /** How many of its bytes are. */
  private long sent;

  /** That a message was longer than its room, which the peer is being told. */
  private InvalidUsage tooLong;

  IbNetSendComm(
      IbNetPlugin plugin,
      int device,
      String peer,
      LinkState link,
      Mailbox mailbox,
      SetupDescriptor.Place remote) {
    super(plugin, device, peer, link, mailbox, remote);
    maxWrite = plugin.options().rdma().maxMessage();
  }

  @Override
  String operation() {
    return "send to";
  }

  @Override
  FluxCclException knownReason() {
    return tooLong;
  }

  @Override
  public NetRequest isend(long address, long size, int tag, NetMemory memory) {
    enter(size);
    try {
      if (size > IbNetMemory.MAX_MESSAGE) {
        throw new InvalidUsage(text() + "size=" + size + "; at most " + IbNetMemory.MAX_MESSAGE);
      }
      VerbsMemory registered = IbNetMemory.find(memory, this, address, size);
      IbNetRequest request = post(address, size, registered == null ? 0 : registered.localKey());
      tryProgress();
      return request;
    } finally {
      leave();
    }
  }

  @Override
  void progress() throws IOException {
    if (head != launched) {
      posts.poll();
    }
    while (head != launched && ends[(int) head & Mailbox.PLACES - 1] <= posts.done()) {
      if (tooLong != null && head == launched - 1) {
        // Only now: the link is closed with a failure, and the peer knows better why.
        fail(tooLong);
        return;
      }
      IbNetRequest request = queued(head++);
      request.finish(request.size());
    }
    while (launched != tail && tooLong == null && launch()) {}
  }

  /** Posts the next message, or a part of it; false when no more can be posted now. */
  private boolean launch() throws IOException {
    if (!mailbox.hasOffer(launched)) {
      return false;
    }
    IbNetRequest request = queued(launched);
    long size = request.size();
    long room = mailbox.offeredRoom(launched);
    boolean fits = size <= room;
    while (fits && sent < size && posts.hasRoom(1)) {
      int length = (int) Math.min(maxWrite, size - sent);
      posts.write(
          false,
          request.address() + sent,
          length,
          request.key(),
          mailbox.offeredAddress(launched) + sent,
          mailbox.offeredKey(launched));
      sent += length;
    }
    if (fits && sent < size || !posts.hasRoom(1)) {
      return false;
    }
    if (!fits) {
      tooLong =
          new InvalidUsage(
              text() + "a message of " + size + " bytes for a receive of " + room + " bytes");
    }
    report(size, fits);
    return true;
  }

  private void report(long size, boolean fits) throws IOException {
    mailbox.putReport(launched, size, !fits);
    int at = Mailbox.report(launched);
    posts.write(
        true, mailbox.at(at), Long.BYTES, mailbox.localKey(), remote.address() + at, remote.key());
    ends[(int) launched & Mailbox.PLACES - 1] = posts.posted();
    launched++;
    sent = 0;
  }
}

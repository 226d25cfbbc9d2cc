package io.fluxccl.netplugin.ib;

import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.TransportFailure;
import io.fluxccl.netplugin.NetMemory;
import io.fluxccl.netplugin.NetRecvComm;
import io.fluxccl.netplugin.NetRequest;
import io.fluxccl.transport.ib.VerbsMemory;
import java.io.IOException;

/**
 * The end that receives: offers the sender the room of each receive, and waits for the report that
 * comes behind the message.
 */
final class IbNetRecvComm extends IbNetComm implements NetRecvComm {
  private static final int POSTS_PER_OFFER = 2;

  IbNetRecvComm(
      IbNetPlugin plugin,
      int device,
      String peer,
      LinkState link,
      Mailbox mailbox,
      SetupDescriptor.Place remote) {
    super(plugin, device, peer, link, mailbox, remote);
  }

  @Override
  String operation() {
    return "receive from";
  }

  @Override
  FluxCclException knownReason() {
    return null;
  }

  @Override
  public NetRequest irecv(long address, long size, int tag, NetMemory memory) {
    enter(size);
    try {
      VerbsMemory registered = IbNetMemory.find(memory, this, address, Math.min(size, 1));
      if (!posts.hasRoom(POSTS_PER_OFFER)) {
        // Full, or failed, which a test would say.
        tryProgress();
        return null;
      }
      long room =
          registered == null ? 0 : Math.min(size, ((IbNetMemory) memory).bytesFrom(address));
      room = Math.min(room, IbNetMemory.MAX_MESSAGE);
      IbNetRequest request = post(address, room, 0);
      offer(tail - 1, address, registered == null ? 0 : registered.remoteKey(), (int) room);
      return request;
    } catch (IOException e) {
      TransportFailure reason = refusal(e);
      fail(reason);
      throw reason;
    } finally {
      leave();
    }
  }

  private void offer(long message, long address, int key, int room) throws IOException {
    mailbox.putOffer(message, address, key, room);
    write(Mailbox.offer(message), Mailbox.OFFER_BODY);
    write(Mailbox.offerNumber(message), Long.BYTES);
  }

  private void write(int at, int length) throws IOException {
    posts.write(
        false, mailbox.at(at), length, mailbox.localKey(), remote.address() + at, remote.key());
  }

  @Override
  public NetRequest irecv(int n, long[] addresses, long[] sizes, int[] tags, NetMemory[] memories) {
    if (n != 1) {
      throw new InvalidUsage(text() + "receives no groups: n=" + n + ", maxRecvs=1");
    }
    return irecv(addresses[0], sizes[0], tags[0], memories[0]);
  }

  @Override
  public NetRequest iflush(int n, long[] addresses, long[] sizes, NetMemory[] memories) {
    enter(0);
    leave();
    // Host memory needs none.
    return null;
  }

  @Override
  void progress() {
    while (head != tail && mailbox.hasReport(head)) {
      long size = mailbox.reportedSize(head);
      IbNetRequest request = queued(head);
      // The second is a peer that breaks the rules.
      if (mailbox.isRefused(head) || size > request.size()) {
        fail(
            new InvalidUsage(
                text()
                    + "it has a message of "
                    + size
                    + " bytes for a receive of "
                    + request.size()
                    + " bytes"));
        return;
      }
      head++;
      request.finish(size);
    }
  }
}

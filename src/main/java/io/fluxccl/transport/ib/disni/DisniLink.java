// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.ib.disni;

import com.ibm.disni.verbs.IbvCQ;
import com.ibm.disni.verbs.IbvQP;
import com.ibm.disni.verbs.IbvSendWR;
import com.ibm.disni.verbs.IbvSge;
import com.ibm.disni.verbs.IbvWC;
import com.ibm.disni.verbs.SVCPollCq;
import com.ibm.disni.verbs.SVCPostSend;
import com.ibm.disni.verbs.impl.NatIbvQP;
import com.ibm.disni.verbs.impl.NatObject;
import io.fluxccl.concurrent.Lifecycle;
import io.fluxccl.transport.RdmaOptions;
import io.fluxccl.transport.ib.Verbs;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.Arrays;
import java.util.LinkedList;
import java.util.List;

/**
 * A queue pair with its completion queue. FluxCCL's own native code creates and connects it; DiSNI
 * posts and polls. Its two calls on the hot path are stateful DiSNI calls, which are created once
 * and modified in place.
 */
final class DisniLink implements Verbs.Link {
  /**
   * The retries of a request that finds no receive. No request needs a receive, so none waits for
   * one; 7 would mean to wait for ever.
   */
  private static final int NOT_READY_RETRIES = 6;

  /**
   * The extra length of the completion queue: failed requests complete even if they asked for no
   * completion.
   */
  private static final int SPARE_COMPLETIONS = 16;

  private final DisniPort port;

  /** Signals, and writes of up to this size, are sent inline if the device supports it. */
  private static final int INLINE_BYTES = 64;

  private static final int COMPLETIONS_AT_ONCE = 32;

  private final RdmaOptions options;

  private IbvCQ completionQueue;
  private long pair;
  private IbvQP queuePair;
  private int inlineLimit;
  private SVCPostSend post;
  private SVCPostSend.SendWRMod request;
  private SVCPostSend.RdmaMod target;
  private SVCPostSend.SgeMod source;
  private SVCPollCq poll;
  private IbvWC[] completions;
  private final Lifecycle lifecycle = new Lifecycle(this);

  private DisniLink(DisniPort port, RdmaOptions options) {
    this.port = port;
    this.options = options;
  }

  static DisniLink create(DisniPort port, RdmaOptions options) throws IOException {
    DisniLink link = new DisniLink(port, options);
    try {
      link.createQueues();
      link.prepareCalls();
      return link;
    } catch (IOException e) {
      link.close();
      throw e;
    }
  }

  private void createQueues() throws IOException {
    int size = options.sendQueueSize();
    completionQueue = port.device().createCQ(port.completionChannel(), size + SPARE_COMPLETIONS, 0);
    long queue = ((NatObject) completionQueue).getObjId();
    inlineLimit = INLINE_BYTES;
    try {
      pair = VerbsCalls.createQueuePair(port.domain(), queue, port.number(), size, inlineLimit);
    } catch (IOException e) {
      inlineLimit = 0;
      pair = VerbsCalls.createQueuePair(port.domain(), queue, port.number(), size, 0);
    }
    queuePair = new NatIbvQP(pair, port.dispatcher());
  }

  private void prepareCalls() throws IOException {
    IbvSendWR write = new IbvSendWR();
    write.setOpcode(IbvSendWR.IBV_WR_RDMA_WRITE);
    write.setSg_list(new LinkedList<>(List.of(new IbvSge())));
    write.setNum_sge(1);
    post = queuePair.postSend(new LinkedList<>(List.of(write)), null);
    request = post.getWrMod(0);
    target = request.getRdmaMod();
    source = request.getSgeMod(0);
    completions = new IbvWC[COMPLETIONS_AT_ONCE];
    Arrays.setAll(completions, i -> new IbvWC());
    poll = completionQueue.poll(completions, completions.length);
  }

  @Override
  public int number() {
    try {
      return queuePair.getQp_num();
    } catch (IOException e) {
      throw new UncheckedIOException(e); // declared, but the method only reads the number
    }
  }

  @Override
  public void connect(Verbs.QueuePairPath path) throws IOException {
    VerbsCalls.readyToReceive(
        pair,
        port.number(),
        path.mtu(),
        path.queuePair(),
        path.receivePacket(),
        path.lid(),
        path.ownGidIndex(),
        path.peerGid());
    VerbsCalls.readyToSend(
        pair,
        path.sendPacket(),
        options.ackTimeoutExponent(),
        options.retries(),
        NOT_READY_RETRIES);
  }

  @Override
  public int inlineLimit() {
    return inlineLimit;
  }

  @Override
  public void postWrite(
      long wrId,
      int flags,
      long address,
      int length,
      int localKey,
      long remoteAddress,
      int remoteKey)
      throws IOException {
    request.setWr_id(wrId);
    request.setSend_flags(flags);
    target.setRemote_addr(remoteAddress);
    target.setRkey(remoteKey);
    source.setAddr(address);
    source.setLength(length);
    source.setLkey(localKey);
    post.execute();
  }

  @Override
  public int poll() throws IOException {
    return poll.execute().getPolls();
  }

  @Override
  public long completedId(int index) {
    return completions[index].getWr_id();
  }

  @Override
  public int completedStatus(int index) {
    return completions[index].getStatus();
  }

  @Override
  public void close() {
    if (!lifecycle.beginClose()) {
      return;
    }
    // Each step runs even if another fails; the kernel frees the rest when the process ends.
    if (pair != 0) {
      quietly(() -> VerbsCalls.destroyQueuePair(pair));
    }
    if (completionQueue != null) {
      quietly(completionQueue::destroyCQ);
    }
    if (post != null) {
      post.free();
    }
    if (poll != null) {
      poll.free();
    }
  }

  private interface Step {
    void run() throws IOException;
  }

  private static void quietly(Step step) {
    try {
      step.run();
    } catch (IOException e) {
      DisniPort.LOGGER.debug("closing a link: {}", e.getMessage());
    }
  }
}

package io.fluxccl.transport.ib.disni;

import com.ibm.disni.verbs.IbvCQ;
import com.ibm.disni.verbs.IbvQP;
import com.ibm.disni.verbs.IbvQPInitAttr;
import com.ibm.disni.verbs.IbvSendWR;
import com.ibm.disni.verbs.IbvSge;
import com.ibm.disni.verbs.IbvWC;
import com.ibm.disni.verbs.RdmaCmId;
import com.ibm.disni.verbs.RdmaConnParam;
import com.ibm.disni.verbs.SVCPollCq;
import com.ibm.disni.verbs.SVCPostSend;
import com.ibm.disni.verbs.impl.NatObject;
import io.fluxccl.transport.RdmaOptions;
import io.fluxccl.transport.ib.LinkEvents;
import io.fluxccl.transport.ib.VerbsLink;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.LinkedList;
import java.util.List;
import org.agrona.BufferUtil;

/**
 * An rdma_cm id with its queue pair. Its two calls on the hot path are stateful DiSNI calls, which
 * are created once and modified in place.
 */
final class DisniLink implements VerbsLink {
  /**
   * The retries of a request that finds no receive. No request needs a receive, so none waits for
   * one; 7 would mean to wait for ever.
   */
  private static final byte NOT_READY_RETRIES = 6;

  /**
   * The extra length of the completion queue: failed requests complete even if they asked for no
   * completion.
   */
  private static final int SPARE_COMPLETIONS = 16;

  private final DisniPort port;
  private final RdmaCmId id;
  private final LinkEvents events;
  private final RdmaOptions options;

  private IbvCQ completionQueue;
  private IbvQP queuePair;
  private int inlineLimit;
  private SVCPostSend post;
  private SVCPostSend.SendWRMod request;
  private SVCPostSend.RdmaMod target;
  private SVCPostSend.SgeMod source;
  private SVCPollCq poll;
  private IbvWC[] completions;
  private boolean closed;

  DisniLink(DisniPort port, RdmaCmId id, LinkEvents events) {
    this.port = port;
    this.id = id;
    this.events = events;
    this.options = events.options();
  }

  RdmaCmId id() {
    return id;
  }

  LinkEvents events() {
    return events;
  }

  int status() {
    return CmCalls.status(((NatObject) id).getObjId());
  }

  /** Creates the queues, once the id has a device. */
  void createQueues() throws IOException {
    int size = options.sendQueueSize();
    completionQueue = port.device().createCQ(port.completionChannel(), size + SPARE_COMPLETIONS, 0);
    // Signals are 8 bytes long and are sent inline if the device supports it.
    inlineLimit = Math.max(Long.BYTES, options.inlineThreshold());
    try {
      queuePair = id.createQP(port.domain(), attributes(inlineLimit));
    } catch (IOException e) {
      inlineLimit = 0;
      queuePair = id.createQP(port.domain(), attributes(0));
    }
    CmCalls.setAckTimeout(((NatObject) id).getObjId(), (byte) options.ackTimeoutExponent());
    prepareCalls();
  }

  private IbvQPInitAttr attributes(int inline) {
    IbvQPInitAttr attributes = new IbvQPInitAttr();
    attributes.setQp_type(IbvQP.IBV_QPT_RC);
    attributes.setSend_cq(completionQueue);
    attributes.setRecv_cq(completionQueue);
    attributes.cap().setMax_send_wr(options.sendQueueSize());
    attributes.cap().setMax_recv_wr(1);
    attributes.cap().setMax_inline_data(inline);
    return attributes;
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
    completions = new IbvWC[options.pollBatch()];
    Arrays.setAll(completions, i -> new IbvWC());
    poll = completionQueue.poll(completions, completions.length);
  }

  /** Sends a connection request, whose answer comes as an event. */
  void connect(byte[] privateData) throws IOException {
    ByteBuffer bytes = ByteBuffer.allocateDirect(privateData.length).put(privateData);
    RdmaConnParam parameters = parameters();
    parameters.setPrivate_data(BufferUtil.address(bytes));
    parameters.setPrivate_data_len((byte) privateData.length);
    id.connect(parameters);
    java.lang.ref.Reference.reachabilityFence(bytes);
  }

  void accept() throws IOException {
    id.accept(parameters());
  }

  private RdmaConnParam parameters() throws IOException {
    RdmaConnParam parameters = new RdmaConnParam();
    parameters.setRetry_count((byte) options.retries());
    parameters.setRnr_retry_count(NOT_READY_RETRIES);
    return parameters;
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
    if (closed) {
      return;
    }
    closed = true;
    port.forget(this);
    // Each step runs even if another fails; the kernel frees the rest when the process ends.
    if (queuePair != null) {
      quietly(id::disconnect);
      quietly(id::destroyQP);
    }
    if (completionQueue != null) {
      quietly(completionQueue::destroyCQ);
    }
    quietly(id::destroyId);
    freeCalls();
  }

  private void freeCalls() {
    if (post != null) {
      post.free();
    }
    if (poll != null) {
      poll.free();
    }
  }

  private interface Step {
    int run() throws IOException;
  }

  private static void quietly(Step step) {
    try {
      step.run();
    } catch (IOException e) {
      DisniPort.LOGGER.debug("closing a link: {}", e.getMessage());
    }
  }
}

package io.fluxccl.transport.ib.disni;

import com.ibm.disni.verbs.IbvCompChannel;
import com.ibm.disni.verbs.IbvContext;
import com.ibm.disni.verbs.IbvMr;
import com.ibm.disni.verbs.IbvPd;
import com.ibm.disni.verbs.RdmaCm;
import com.ibm.disni.verbs.RdmaCmEvent;
import com.ibm.disni.verbs.RdmaCmEvent.EventType;
import com.ibm.disni.verbs.RdmaCmId;
import com.ibm.disni.verbs.RdmaEventChannel;
import com.ibm.disni.verbs.SVCRegMr;
import com.ibm.disni.verbs.impl.NatObject;
import io.fluxccl.transport.ib.LinkEvents;
import io.fluxccl.transport.ib.VerbsLink;
import io.fluxccl.transport.ib.VerbsMemory;
import io.fluxccl.transport.ib.VerbsPort;
import java.io.IOException;
import java.net.Inet4Address;
import java.net.InetSocketAddress;
import java.util.HashMap;
import java.util.Map;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** An rdma_cm event channel and a listening id, through which the device is opened. */
final class DisniPort implements VerbsPort {
  static final Logger LOGGER = LoggerFactory.getLogger(DisniPort.class);

  private static final int BACKLOG = 1024;
  private static final int EVENTS_AT_A_TIME = 64;
  private static final int STEP_TIMEOUT_MILLIS = 5_000;
  private static final int ACCESS = IbvMr.IBV_ACCESS_LOCAL_WRITE | IbvMr.IBV_ACCESS_REMOTE_WRITE;
  private static final EventType[] EVENTS = EventType.values();

  private final Inet4Address address;
  private final Requests requests;
  private final RdmaEventChannel channel;
  private final Map<RdmaCmId, DisniLink> links = new HashMap<>();
  private final Map<RdmaCmId, byte[]> greetings = new HashMap<>();
  private RdmaCmId listener;
  private IbvContext device;
  private IbvPd domain;
  private IbvCompChannel completionChannel;
  private int port;

  private DisniPort(Inet4Address address, Requests requests) throws IOException {
    this.address = address;
    this.requests = requests;
    this.channel = RdmaEventChannel.createEventChannel();
  }

  static DisniPort open(Inet4Address address, Requests requests) throws IOException {
    DisniPort made = new DisniPort(address, requests);
    try {
      made.listen();
      return made;
    } catch (IOException e) {
      made.close();
      throw e;
    }
  }

  private void listen() throws IOException {
    listener = channel.createId(RdmaCm.RDMA_PS_TCP);
    listener.bindAddr(new InetSocketAddress(address, 0));
    device = listener.getVerbs();
    domain = device.allocPd();
    completionChannel = device.createCompChannel();
    listener.listen(BACKLOG);
    port = ((InetSocketAddress) listener.getSource()).getPort();
  }

  IbvContext device() {
    return device;
  }

  IbvPd domain() {
    return domain;
  }

  IbvCompChannel completionChannel() {
    return completionChannel;
  }

  void forget(DisniLink link) {
    links.remove(link.id());
    greetings.remove(link.id());
  }

  @Override
  public int port() {
    return port;
  }

  @Override
  public VerbsMemory register(long start, int length) throws IOException {
    SVCRegMr call = domain.regMr(start, length, ACCESS);
    try {
      return new DisniMemory(call.execute().getMr());
    } finally {
      call.free();
    }
  }

  @Override
  public VerbsLink connect(InetSocketAddress peer, byte[] privateData, LinkEvents events)
      throws IOException {
    RdmaCmId id = channel.createId(RdmaCm.RDMA_PS_TCP);
    DisniLink link = new DisniLink(this, id, events);
    links.put(id, link);
    greetings.put(id, privateData);
    try {
      // The id is bound first, so that the connection uses this device and no other.
      id.bindAddr(new InetSocketAddress(address, 0));
      id.resolveAddr(null, peer, STEP_TIMEOUT_MILLIS);
      return link;
    } catch (IOException e) {
      link.close();
      throw e;
    }
  }

  @Override
  public int poll() throws IOException {
    int taken = 0;
    while (taken < EVENTS_AT_A_TIME && CmCalls.hasEvent(((NatObject) channel).getObjId())) {
      RdmaCmEvent event = channel.getCmEvent(0);
      if (event == null) {
        break;
      }
      taken++;
      handle(EVENTS[event.getEvent()], event);
    }
    return taken;
  }

  private void handle(EventType type, RdmaCmEvent event) {
    RdmaCmId id = event.getConnIdPriv();
    if (type == EventType.RDMA_CM_EVENT_CONNECT_REQUEST) {
      request(id);
      return;
    }
    DisniLink link = links.get(id);
    if (link == null) {
      return;
    }
    try {
      advance(type, link);
    } catch (IOException e) {
      link.events().failed(link, e.getMessage());
    }
  }

  private void advance(EventType type, DisniLink link) throws IOException {
    switch (type) {
      case RDMA_CM_EVENT_ADDR_RESOLVED -> link.id().resolveRoute(STEP_TIMEOUT_MILLIS);
      case RDMA_CM_EVENT_ROUTE_RESOLVED -> {
        link.createQueues();
        link.connect(greetings.remove(link.id()));
      }
      case RDMA_CM_EVENT_ESTABLISHED -> link.events().established(link);
      case RDMA_CM_EVENT_DISCONNECTED, RDMA_CM_EVENT_DEVICE_REMOVAL ->
          link.events().disconnected(link);
      case RDMA_CM_EVENT_ADDR_ERROR,
          RDMA_CM_EVENT_ROUTE_ERROR,
          RDMA_CM_EVENT_CONNECT_ERROR,
          RDMA_CM_EVENT_UNREACHABLE,
          RDMA_CM_EVENT_REJECTED ->
          link.events().failed(link, type + " with status " + link.status());
      default -> LOGGER.debug("{} with status {} is ignored", type, link.status());
    }
  }

  private void request(RdmaCmId id) {
    LinkEvents events = requests.admit(CmCalls.privateData(((NatObject) id).getObjId()));
    if (events == null) {
      refuse(id);
      return;
    }
    DisniLink link = new DisniLink(this, id, events);
    links.put(id, link);
    events.requested(link);
    try {
      link.createQueues();
      link.accept();
    } catch (IOException e) {
      events.failed(link, e.getMessage());
    }
  }

  private static void refuse(RdmaCmId id) {
    try {
      CmCalls.reject(((NatObject) id).getObjId());
      id.destroyId();
    } catch (IOException e) {
      LOGGER.debug("rejecting a connection request: {}", e.getMessage());
    }
  }

  @Override
  public void close() {
    try {
      if (listener != null) {
        listener.destroyId();
      }
      if (completionChannel != null) {
        completionChannel.destroyCompChannel();
      }
      if (domain != null) {
        domain.deallocPd();
      }
      channel.destroyEventChannel();
    } catch (Exception e) { // deallocPd is declared to throw any
      LOGGER.debug("closing the RDMA device at {}: {}", address, e.getMessage());
    }
  }
}

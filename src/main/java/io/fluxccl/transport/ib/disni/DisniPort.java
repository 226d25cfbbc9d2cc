// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.ib.disni;

import com.ibm.disni.verbs.IbvCompChannel;
import com.ibm.disni.verbs.IbvContext;
import com.ibm.disni.verbs.IbvMr;
import com.ibm.disni.verbs.IbvPd;
import com.ibm.disni.verbs.SVCRegMr;
import com.ibm.disni.verbs.impl.NatIbvContext;
import com.ibm.disni.verbs.impl.NatObject;
import com.ibm.disni.verbs.impl.NativeDispatcher;
import io.fluxccl.Text;
import io.fluxccl.TransportFailure;
import io.fluxccl.concurrent.Lifecycle;
import io.fluxccl.transport.RdmaOptions;
import io.fluxccl.transport.ib.Verbs;
import java.io.IOException;
import java.util.Map;
import java.util.Optional;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** A port of a device that this object has opened, with a protection domain. */
final class DisniPort implements Verbs.Port {
  static final Logger LOGGER = LoggerFactory.getLogger(DisniPort.class);

  private static final int ACCESS = IbvMr.IBV_ACCESS_LOCAL_WRITE | IbvMr.IBV_ACCESS_REMOTE_WRITE;

  /** {@code IBV_LINK_LAYER_ETHERNET}. */
  private static final int ETHERNET = 2;

  /** The numbers of Linux. */
  private static final int EBADF = 9;

  private static final Map<Integer, String> NO_DMA_BUFS =
      Map.of(
          38, "libibverbs is older than 34",
          95, "the device's driver takes none",
          93, "the kernel's driver takes none");

  private final NativeDispatcher dispatcher;
  private final String name;
  private final int number;
  private final long context;
  private IbvContext device;
  private IbvPd domain;
  private IbvCompChannel completionChannel;
  private Attributes attributes;

  private DisniPort(NativeDispatcher dispatcher, String name, int number) throws IOException {
    this.dispatcher = dispatcher;
    this.name = name;
    this.number = number;
    this.context = VerbsCalls.openDevice(name);
  }

  static DisniPort open(NativeDispatcher dispatcher, String name, int number) throws IOException {
    DisniPort port = new DisniPort(dispatcher, name, number);
    try {
      port.open();
      return port;
    } catch (IOException e) {
      port.close();
      throw e;
    }
  }

  private void open() throws IOException {
    int[] found = new int[3];
    VerbsCalls.queryPort(context, number, found);
    attributes = new Attributes(found[0] == ETHERNET, found[1], found[2]);
    device = new NatIbvContext(context, dispatcher);
    domain = device.allocPd();
    completionChannel = device.createCompChannel();
  }

  NativeDispatcher dispatcher() {
    return dispatcher;
  }

  IbvContext device() {
    return device;
  }

  long domain() {
    return ((NatObject) domain).getObjId();
  }

  int number() {
    return number;
  }

  IbvCompChannel completionChannel() {
    return completionChannel;
  }

  @Override
  public Attributes attributes() {
    return attributes;
  }

  @Override
  public Verbs.Memory register(long start, int length) throws IOException {
    SVCRegMr call = domain.regMr(start, length, ACCESS);
    try {
      IbvMr region = call.execute().getMr();
      return new DisniMemory(
          region.getLkey(), region.getRkey(), () -> region.deregMr().execute().free());
    } finally {
      call.free();
    }
  }

  @Override
  public Verbs.Memory registerDmaBuf(int descriptor, long offset, long address, int length)
      throws IOException {
    int[] keys = new int[2];
    long region = VerbsCalls.registerDmaBuf(domain(), descriptor, offset, length, address, keys);
    return new DisniMemory(keys[0], keys[1], () -> VerbsCalls.deregister(region));
  }

  @Override
  public Optional<String> refusesDmaBufsBecause() {
    int error = VerbsCalls.probeDmaBuf(domain());
    return error == EBADF || error == 0
        ? Optional.empty()
        : Optional.of(
            Text.of(
                "%s takes no dma-bufs: %s",
                name, NO_DMA_BUFS.getOrDefault(error, "errno " + error)));
  }

  @Override
  public Verbs.Link createLink(RdmaOptions options) throws IOException {
    return DisniLink.create(this, options);
  }

  @Override
  public void close() {
    try {
      if (completionChannel != null) {
        completionChannel.destroyCompChannel();
      }
      if (domain != null) {
        domain.deallocPd();
      }
      VerbsCalls.closeDevice(context);
    } catch (Exception e) { // deallocPd is declared to throw any
      LOGGER.debug("closing port {} of {}: {}", number, name, e.getMessage());
    }
  }

  /** A memory region that is registered with a device. */
  private record DisniMemory(
      int localKey, int remoteKey, Deregistration deregistration, Lifecycle lifecycle)
      implements Verbs.Memory {
    /** Ends a registration. */
    interface Deregistration {
      void run() throws IOException;
    }

    DisniMemory(int localKey, int remoteKey, Deregistration deregistration) {
      this(localKey, remoteKey, deregistration, new Lifecycle("a registration"));
    }

    @Override
    public void close() {
      if (lifecycle.beginClose()) {
        try {
          deregistration.run();
        } catch (IOException e) {
          throw new TransportFailure(
              TransportFailure.NO_RANK, "memory can't be deregistered: " + e.getMessage(), e);
        }
      }
    }
  }
}

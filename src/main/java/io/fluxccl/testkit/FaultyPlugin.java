// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.testkit;

import io.fluxccl.netplugin.NetHandle;
import io.fluxccl.netplugin.NetListenComm;
import io.fluxccl.netplugin.NetPlugin;
import io.fluxccl.netplugin.NetProperties;
import io.fluxccl.netplugin.NetSendComm;
import io.fluxccl.transport.Endpoint;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Supplier;

/** A rank's TCP network, whose sending ends have the faults of their link. */
final class FaultyPlugin implements NetPlugin {
  private final FaultyNetwork network;
  private final NetPlugin plugin;

  /** The link for which the calling thread makes a listener. */
  private final ThreadLocal<FaultyLink> listening = new ThreadLocal<>();

  FaultyPlugin(FaultyNetwork network, NetPlugin plugin) {
    this.network = network;
    this.plugin = plugin;
  }

  /** Makes an endpoint whose listener is for that link. */
  Endpoint listeningFor(FaultyLink link, Supplier<Endpoint> make) {
    listening.set(link);
    try {
      return make.get();
    } finally {
      listening.remove();
    }
  }

  @Override
  public NetListenComm listen(int device) {
    NetListenComm listener = plugin.listen(device);
    network.add(key(listener.handle()), listening.get());
    return listener;
  }

  @Override
  public NetSendComm connect(int device, NetHandle handle) {
    byte[] bytes = new byte[HANDLE_BYTES];
    handle.bytes().get(0, bytes);
    FaultyLink link = network.get(key(bytes));
    NetSendComm comm = plugin.connect(device, handle);
    return comm == null || link == null ? comm : new FaultySender(network, link, comm);
  }

  private static List<Byte> key(byte[] handle) {
    List<Byte> key = new ArrayList<>(HANDLE_BYTES);
    for (int i = 0; i < HANDLE_BYTES; i++) {
      key.add(i < handle.length ? handle[i] : 0);
    }
    return key;
  }

  @Override
  public String name() {
    return plugin.name();
  }

  @Override
  public int devices() {
    return plugin.devices();
  }

  @Override
  public int maxRequests() {
    return plugin.maxRequests();
  }

  @Override
  public boolean carriesBodies() {
    return plugin.carriesBodies();
  }

  @Override
  public void tend() {
    plugin.tend();
  }

  @Override
  public NetProperties properties(int device) {
    return plugin.properties(device);
  }

  @Override
  public void close() {
    plugin.close();
  }
}

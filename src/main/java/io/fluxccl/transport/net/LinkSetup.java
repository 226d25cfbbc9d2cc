// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import io.fluxccl.concurrent.Closing;
import io.fluxccl.netplugin.NetHandle;
import io.fluxccl.netplugin.NetListenComm;
import io.fluxccl.netplugin.NetPlugin;
import java.util.Arrays;
import org.agrona.CloseHelper;

/**
 * Opens the plugin connections of one end: connects to each of the peer's listeners, accepts a
 * connection on each of its own, and exchanges a {@link Greeting} on each. Confined to the agent,
 * except the constructor, {@link #rails} and {@link #ownHandles}.
 */
final class LinkSetup {
  private final NetPlugin plugin;
  private final int[] devices;
  private final NetListenComm[] listeners;
  private final byte[] token;

  private EndpointWire peer;
  private Links links;
  private NetHandle[] handles;

  /** For each link the greeting to send and that to receive, or null. */
  private Greeting[] greetings;

  /**
   * Starts to listen. Any thread.
   *
   * @param devices the device of each rail
   */
  LinkSetup(NetPlugin plugin, int[] devices, byte[] token) {
    this.plugin = plugin;
    this.devices = devices;
    this.token = token;
    this.listeners = new NetListenComm[rails(plugin, devices) + 1];
    try {
      for (int i = 0; i < listeners.length; i++) {
        listeners[i] = plugin.listen(deviceOf(i));
      }
    } catch (Throwable e) {
      CloseHelper.quietClose(this::closeListeners);
      throw e;
    }
  }

  /**
   * Returns the number of rails, the connections that carry only bytes. It is 0 if there is one
   * device and its messages have bodies.
   */
  static int rails(NetPlugin plugin, int[] devices) {
    return devices.length == 1 && plugin.carriesBodies() ? 0 : devices.length;
  }

  private int deviceOf(int link) {
    return devices[Math.max(0, link - 1)];
  }

  byte[][] ownHandles() {
    byte[][] own = new byte[listeners.length][NetPlugin.HANDLE_BYTES];
    for (int i = 0; i < own.length; i++) {
      byte[] handle = listeners[i].handle();
      System.arraycopy(handle, 0, own[i], 0, handle.length);
    }
    return own;
  }

  /** Starts to connect to the peer's end. */
  void start(EndpointWire remote) {
    peer = remote;
    int rails = Math.min(remote.rails(), listeners.length - 1);
    links = new Links(rails);
    handles = new NetHandle[rails + 1];
    greetings = new Greeting[2 * (rails + 1)];
    for (int i = 0; i <= rails; i++) {
      handles[i] = new NetHandle(remote.handles()[i]);
    }
  }

  /** Advances the set-up. Returns the connections once all are open, and null before. */
  Links poll() {
    for (int i = 0; i < handles.length; i++) {
      if (links.senders[i] == null) {
        links.senders[i] = plugin.connect(deviceOf(i), handles[i]);
      }
      if (links.receivers[i] == null) {
        links.receivers[i] = listeners[i].accept();
      }
    }
    boolean all = links.areComplete();
    for (int i = 0; i < handles.length; i++) {
      all &= links.senders[i] != null && sendGreeting(i);
      all &= links.receivers[i] != null && receiveGreeting(i);
    }
    if (!all) {
      return null;
    }
    if (rails(plugin, devices) > 0) {
      // A connection that resumes listens as long as it is open.
      closeListeners();
    }
    Closing.all(greetings);
    return links;
  }

  private boolean sendGreeting(int link) {
    int place = 2 * link;
    if (greetings[place] == null) {
      greetings[place] = Greeting.to(links.senders[link], peer.token(), 0, 0);
    }
    return greetings[place].poll();
  }

  private boolean receiveGreeting(int link) {
    int place = 2 * link + 1;
    if (greetings[place] == null) {
      greetings[place] = Greeting.from(links.receivers[link], token);
    }
    return greetings[place].poll();
  }

  /** Returns what replaces the link when it is lost, or null if the connection has rails. */
  LinkResume resume() {
    return links.rails() > 0
        ? null
        : new LinkResume(plugin, deviceOf(0), listeners[0], peer, token, links);
  }

  /** Returns a description of the missing step, for an error message. */
  String missing() {
    if (links == null) {
      return "it has not received its peer's address";
    }
    for (int i = 0; i < handles.length; i++) {
      if (links.senders[i] == null) {
        return "it has not answered";
      }
    }
    return "it has not connected to this rank";
  }

  /** Closes the listeners, the pending attempts and the connections. */
  void close() {
    // Closes every resource even if closing one fails.
    Closing.all(
        this::closeListeners,
        links == null ? null : this::giveUpAttempts,
        links == null ? null : links::close);
  }

  private void giveUpAttempts() {
    Closing.all(Arrays.stream(handles).<AutoCloseable>map(handle -> handle::abandon).toList());
  }

  private void closeListeners() {
    Closing.all(listeners);
  }
}

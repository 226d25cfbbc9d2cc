// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.plugin;

import io.fluxccl.netplugin.NetPlugin;
import io.fluxccl.wire.WireReader;
import io.fluxccl.wire.WireWriter;

/**
 * The description of an end, by which its peer connects to it.
 *
 * @param maxBytes the length in bytes of the longest message
 * @param token a peer must present it to connect to this end
 * @param handles the listeners' handles: first for heads, then for each rail
 */
record PluginAddress(long maxBytes, byte[] token, byte[][] handles) {
  static final int MAX_RAILS = 8;
  static final int TOKEN_LENGTH = 32;

  byte[] encode() {
    WireWriter out = new WireWriter().int64(maxBytes).uint16(handles.length).raw(token);
    for (byte[] handle : handles) {
      out.raw(handle);
    }
    return out.toBytes();
  }

  /**
   * Decodes an address, and validates every field except the handles. The plug-in must handle a
   * wrong handle.
   *
   * @throws io.fluxccl.TransportFailure if it is malformed
   */
  static PluginAddress decode(byte[] wire, int fromRank) {
    WireReader in = WireReader.ofPeer(wire, "address", fromRank);
    long maxBytes = in.int64("maxBytes", 1, Long.MAX_VALUE);
    int count = in.uint16("handles");
    in.check(count > 1 && count <= MAX_RAILS + 1, "handles", "" + count);
    byte[] token = in.raw("token", TOKEN_LENGTH);
    byte[][] handles = new byte[count][];
    for (int i = 0; i < count; i++) {
      handles[i] = in.raw("handle", NetPlugin.HANDLE_BYTES);
    }
    in.end();
    return new PluginAddress(maxBytes, token, handles);
  }
}

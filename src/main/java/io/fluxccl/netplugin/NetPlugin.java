// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin;

/**
 * A network plugin as in NCCL's interface: it moves messages between registered memory of two
 * processes.
 *
 * <p>The calls are those of NCCL's interface and, like them, do not block. {@link #connect}, {@link
 * NetListenComm#accept}, {@link NetSendComm#isend} and {@link NetRecvComm#irecv} return null when
 * they can't proceed yet; the caller then repeats the call. Errors are {@link
 * io.fluxccl.FluxCclException}s in place of NCCL's codes. They are {@link
 * io.fluxccl.TransportFailure} if the system fails, {@link io.fluxccl.RemoteFailure} or {@link
 * io.fluxccl.Timeout} if the peer fails, {@link NetMisuse} if the caller misuses the interface, and
 * another {@link io.fluxccl.InvalidUsage} if the user's calls or settings do not match.
 *
 * <p>Any thread may call the plugin itself. A comm and its requests are used by one thread at a
 * time; different threads may use different comms at the same time.
 *
 * <p>{@link java.util.ServiceLoader} finds implementations with a name for {@code NCCL_NET} through
 * {@link NetPluginProvider}.
 */
public interface NetPlugin extends AutoCloseable {
  /** The size of a connection's handle in bytes. */
  int HANDLE_BYTES = 128;

  /** The usual limit of receives, grouped or not, in flight on one connection. */
  int MAX_REQUESTS = 32;

  /** Returns the network's name, as in {@code NCCL_NET}; it never changes. */
  String name();

  /** Returns the number of devices, 1 or more. */
  int devices();

  /**
   * Returns the most receives, grouped or not, in flight on one connection. The limit of sends is
   * this number times {@link NetProperties#maxRecvs()}.
   */
  default int maxRequests() {
    return MAX_REQUESTS;
  }

  /**
   * Returns the properties of a device.
   *
   * @param device 0 to {@link #devices()} - 1
   * @return its properties
   * @throws io.fluxccl.InvalidUsage if there is no such device
   */
  NetProperties properties(int device);

  /**
   * Starts to listen for one connection.
   *
   * @param device the device to use
   * @return the listener, whose {@link NetListenComm#accept} returns the connection
   * @throws io.fluxccl.InvalidUsage if there is no such device
   * @throws io.fluxccl.TransportFailure if the plugin can't listen
   */
  NetListenComm listen(int device);

  /**
   * Connects to a listener. The caller repeats the call with the same handle object until it
   * returns a connection.
   *
   * @param device the device to use
   * @param handle the listener's handle, in which the plugin keeps its progress
   * @return the sending end, or null if the connection is not complete yet
   * @throws io.fluxccl.InvalidUsage if there is no such device, or the handle is not of this plugin
   * @throws io.fluxccl.RemoteFailure if the listener is closed and the network detects that
   * @throws io.fluxccl.FluxCclException if the listener can't be reached
   */
  NetSendComm connect(int device, NetHandle handle);

  /**
   * Closes the plugin with its open comms and listeners, and fails requests in flight. Idempotent;
   * later calls are refused.
   */
  @Override
  void close();
}

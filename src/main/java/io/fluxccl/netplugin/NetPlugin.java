package io.fluxccl.netplugin;

/**
 * A network, as NCCL sees one: it moves messages between registered memory of two processes.
 *
 * <p>The calls are those of NCCL's interface and, like them, do not block: {@link #connect}, {@link
 * NetListenComm#accept}, {@link NetSendComm#isend} and {@link NetRecvComm#irecv} give null when
 * they can't go on yet, and are to be called again. Errors are {@link io.fluxccl.FluxCclException}s
 * in place of NCCL's codes: {@link io.fluxccl.TransportFailure} where the system failed, {@link
 * io.fluxccl.RemoteFailure} or {@link io.fluxccl.Timeout} where the peer did, {@link
 * io.fluxccl.InvalidUsage} where the caller did.
 *
 * <p>The plugin itself may be called by any thread. A comm and its requests are used by one thread
 * at a time; different comms by different threads at the same time.
 *
 * <p>Implementations that come with a name for {@code NCCL_NET} are found by {@link
 * java.util.ServiceLoader} through {@link NetPluginProvider}.
 */
public interface NetPlugin extends AutoCloseable {
  /** The size of a connection's handle in bytes. */
  int HANDLE_BYTES = 128;

  /** How many receives, grouped or not, may be in flight on one connection: the usual limit. */
  int MAX_REQUESTS = 32;

  /** The network's name, as in {@code NCCL_NET}; the same always. */
  String name();

  /** How many devices there are, 1 or more. */
  int devices();

  /**
   * How many receives, grouped or not, may be in flight on one connection; and so many sends, times
   * {@link NetProperties#maxRecvs()}.
   */
  default int maxRequests() {
    return MAX_REQUESTS;
  }

  /**
   * Returns whether messages can have a body, which the receiver places by the message's head: see
   * {@link NetSendComm#isend(long, long, NetMemory, long, long, boolean)}. NCCL's interface has no
   * bodies, so a vendor's plugin carries none.
   */
  default boolean carriesBodies() {
    return false;
  }

  /**
   * Answers those who connect to listeners that nobody asks for a connection, where the network
   * does not do so itself. Called now and then by a thread that drives comms; never blocks.
   */
  default void tend() {}

  /**
   * What a device is.
   *
   * @param device 0 to {@link #devices()} - 1
   * @return its properties
   * @throws io.fluxccl.InvalidUsage if there is no such device
   */
  NetProperties properties(int device);

  /**
   * Starts to listen for one connection.
   *
   * @param device on which
   * @return where {@link NetListenComm#accept} finds the connection
   * @throws io.fluxccl.InvalidUsage if there is no such device
   * @throws io.fluxccl.TransportFailure if it can't listen
   */
  NetListenComm listen(int device);

  /**
   * Connects to a listener; to be called with the same object until it gives a connection.
   *
   * @param device on which
   * @param handle the listener's; the plugin keeps its progress in it
   * @return the sending end, or null: not yet
   * @throws io.fluxccl.InvalidUsage if there is no such device, or the handle is not this plugin's
   * @throws io.fluxccl.FluxCclException if the listener can't be reached
   */
  NetSendComm connect(int device, NetHandle handle);

  /**
   * Ends the plugin: closes what is still open, fails requests in flight. Idempotent; further calls
   * are refused.
   */
  @Override
  void close();
}

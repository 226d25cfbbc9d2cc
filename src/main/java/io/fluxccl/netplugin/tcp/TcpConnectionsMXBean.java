package io.fluxccl.netplugin.tcp;

import java.util.List;

/** The connections of this process over TCP, for JMX. For any thread. */
public interface TcpConnectionsMXBean {
  /** One row for each end of a connection, in no order. */
  List<ConnectionState> getConnections();

  /** The same to read. */
  String getTable();
}

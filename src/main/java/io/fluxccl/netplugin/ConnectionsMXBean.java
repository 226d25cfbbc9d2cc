package io.fluxccl.netplugin;

import java.util.List;

/** The connections of this process over one network, for JMX. For any thread. */
public interface ConnectionsMXBean {
  /** One row for each end of a connection, in no order. */
  List<ConnectionState> getConnections();

  /** The same to read. */
  String getTable();
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin;

import java.util.List;

/**
 * The JMX bean that shows the connections of this process over one network. Any thread may call it.
 */
public interface ConnectionsMXBean {
  /** Returns one row for each end of a connection, in no particular order. */
  List<ConnectionState> getConnections();

  /** Returns the rows as a text table. */
  String getTable();
}

package io.fluxccl.netplugin.ib;

import io.fluxccl.transport.RdmaOptions;
import io.fluxccl.transport.ib.LinkEvents;
import io.fluxccl.transport.ib.VerbsLink;

/** What is known of a link. Told by whoever looks at the port, read by any thread. */
final class LinkState implements LinkEvents {
  private final RdmaOptions options;
  private volatile VerbsLink link;
  private volatile boolean established;
  private volatile boolean disconnected;
  private volatile String failure;

  LinkState(RdmaOptions options) {
    this.options = options;
  }

  @Override
  public RdmaOptions options() {
    return options;
  }

  @Override
  public void requested(VerbsLink requested) {
    link = requested;
  }

  @Override
  public void established(VerbsLink which) {
    established = true;
  }

  @Override
  public void disconnected(VerbsLink which) {
    disconnected = true;
  }

  @Override
  public void failed(VerbsLink which, String what) {
    failure = what;
  }

  /** The link, or null. */
  VerbsLink link() {
    return link;
  }

  boolean isEstablished() {
    return established;
  }

  /** Whether the peer has closed its end, or is no more. */
  boolean isDisconnected() {
    return disconnected;
  }

  /** Why it could not be connected, or null. */
  String failure() {
    return failure;
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.ib;

import io.fluxccl.Text;
import java.util.List;

/**
 * The address by which peers reach a port.
 *
 * @param attributes of the port
 * @param gids those by which it may be addressed
 */
record PortAddress(Verbs.Port.Attributes attributes, List<Gid> gids) {
  /** The most GIDs that a description holds. */
  static final int MAX_GIDS = 32;

  /** Keeps the first {@value #MAX_GIDS} GIDs. */
  PortAddress {
    gids = List.copyOf(gids.subList(0, Math.min(MAX_GIDS, gids.size())));
  }

  /**
   * The addresses that two ports use with each other.
   *
   * @param own this port's GID, or null to send by LID
   * @param peer the peer's GID, or null to send by LID
   * @param problem why the ports can't reach each other, or null
   */
  record Route(Gid own, Gid peer, String problem) {
    private static Route none(String format, Object... args) {
      return new Route(null, null, Text.of(format, args));
    }
  }

  /**
   * Returns the route to another port. InfiniBand within a subnet sends by LID. Everything else
   * sends by GID: of the first kind that both ports have, each port uses its first GID. So both
   * ends choose the same kind.
   */
  Route routeTo(PortAddress peer) {
    if (attributes.ethernet() != peer.attributes.ethernet()) {
      return Route.none("this port's link is %s, the peer's is %s", linkLayer(), peer.linkLayer());
    }
    for (Gid.Kind kind : Gid.Kind.values()) {
      Gid own = first(kind);
      Gid theirs = peer.first(kind);
      if (own == null || theirs == null) {
        continue;
      }
      if (attributes.ethernet()) {
        return new Route(own, theirs, null);
      }
      if (!own.sharesSubnetWith(theirs)) {
        return Route.none("the ports are of different InfiniBand subnets: %s and %s", own, theirs);
      }
      if (attributes.lid() != 0 && peer.attributes.lid() != 0) {
        return new Route(null, null, null);
      }
      return Route.none(
          "no subnet manager has given LIDs to both ports: %d and %d",
          attributes.lid(), peer.attributes.lid());
    }
    return Route.none(
        "the ports have no address (GID) of the same kind: %s and %s", gids, peer.gids);
  }

  private Gid first(Gid.Kind kind) {
    return gids.stream().filter(gid -> gid.kind() == kind).findFirst().orElse(null);
  }

  private String linkLayer() {
    return attributes.ethernet() ? "Ethernet" : "InfiniBand";
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.FluxCclException;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.ObjIntConsumer;

/** The sub-groups of a job that have this rank. Only on the event loop. */
final class SubGroups {
  private final AbstractBootstrap job;

  /** By id; one that was closed stays until its other ranks have left it, too. */
  private final Map<Long, SubBootstrap> groups = new HashMap<>();

  SubGroups(AbstractBootstrap job) {
    this.job = job;
  }

  /** Adds a sub-group, with the messages of ranks that formed it earlier. */
  void add(SubBootstrap group) {
    groups.put(group.id, group);
    job.mailboxes.take(group.id, group::arrivedAtJob);
  }

  /** Returns how many there are. */
  int size() {
    return groups.size();
  }

  void remove(SubBootstrap group) {
    groups.remove(group.id, group);
  }

  /** Delivers a message, or keeps it: this rank may still be in the split. */
  void arrived(StreamKey key, Message message) {
    SubBootstrap group = groups.get(key.group());
    if (group == null) {
      job.mailboxes.deliver(key, message);
    } else {
      group.arrivedAtJob(key, message);
    }
  }

  /** Fails all sub-groups, because the job has failed. */
  void fail(FluxCclException reason) {
    all().forEach(group -> group.fail(group.fromJob(reason)));
  }

  /** Records that a rank has left the job. */
  void departed(int peer) {
    forEachWith(peer, SubBootstrap::hasLeft);
  }

  void streamMayHaveEnded(int peer) {
    forEachWith(peer, AbstractBootstrap::streamMayHaveEnded);
  }

  private void forEachWith(int peer, ObjIntConsumer<SubBootstrap> action) {
    for (SubBootstrap group : all()) {
      int there = group.ranks.indexOf(peer);
      if (there >= 0) {
        action.accept(group, there);
      }
    }
  }

  /** Closes all sub-groups, because this rank leaves the job. */
  void close() {
    all().forEach(AbstractBootstrap::closeAsync);
  }

  // A copy: each may remove itself.
  private List<SubBootstrap> all() {
    return List.copyOf(groups.values());
  }
}

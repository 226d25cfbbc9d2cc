// SPDX-License-Identifier: Apache-2.0
package io.fluxccl;

import io.fluxccl.concurrent.NonblockingThread;
import reactor.blockhound.BlockHound;
import reactor.blockhound.integration.BlockHoundIntegration;

/**
 * Configures BlockHound, if an application uses it. {@link NonblockingThread}s may spin and sleep
 * while they idle, and the host device's streams may run kernels, which wait for their peers.
 * Threads that submit tasks, also to the application's schedulers, may take the lock of the JDK's
 * pool. The pool holds it while it counts a thread, not while a task runs. A pool's thread may wait
 * for its next task, and end. BlockHound still checks code that users chain to the library's
 * futures. BlockHound finds this class by itself.
 */
@Experimental
public final class BlockHoundRules implements BlockHoundIntegration {
  @Override
  public void applyTo(BlockHound.Builder builder) {
    builder
        .allowBlockingCallsInside("io.fluxccl.device.host.HostStream$Live", "runTasks")
        .allowBlockingCallsInside("io.fluxccl.device.host.BlockWorkers$Worker", "run")
        .disallowBlockingCallsInside("io.fluxccl.device.host.HostStream$Live", "complete")
        .allowBlockingCallsInside("io.fluxccl.concurrent.AgentThread", "nap")
        .allowBlockingCallsInside("io.fluxccl.concurrent.IdleBackoff", "nextNapNanos")
        .allowBlockingCallsInside("java.util.concurrent.ThreadPoolExecutor", "addWorker")
        .allowBlockingCallsInside("java.util.concurrent.ThreadPoolExecutor", "getTask")
        .allowBlockingCallsInside("java.util.concurrent.ThreadPoolExecutor", "processWorkerExit")
        .allowBlockingCallsInside("java.util.concurrent.ThreadPoolExecutor", "tryTerminate")
        .allowBlockingCallsInside("io.fluxccl.proxy.Proxy", "onStart")
        .allowBlockingCallsInside("io.fluxccl.proxy.Proxy", "cycle")
        .allowBlockingCallsInside("io.fluxccl.proxy.Proxy", "onClose")
        .allowBlockingCallsInside("io.fluxccl.transport.ib.IbAgent", "idle")
        .allowBlockingCallsInside("io.fluxccl.transport.net.NetAgent", "idle")
        .allowBlockingCallsInside("io.fluxccl.netplugin.reactive.NetLoop", "idle");
  }
}

package io.fluxccl;

import io.fluxccl.concurrent.NonblockingThread;
import reactor.blockhound.BlockHound;
import reactor.blockhound.integration.BlockHoundIntegration;

/**
 * Tells BlockHound, where it is used, what {@link NonblockingThread}s may do: sleep when nobody
 * waits for them, and, on the host device, run kernels, which wait for their peers. What users
 * chain to the library's futures stays watched. Found by BlockHound itself.
 */
public final class BlockHoundRules implements BlockHoundIntegration {
  @Override
  public void applyTo(BlockHound.Builder builder) {
    builder
        .allowBlockingCallsInside("io.fluxccl.device.host.StreamWorker", "run")
        .disallowBlockingCallsInside("io.fluxccl.device.host.LiveHostStream", "complete")
        .allowBlockingCallsInside("io.fluxccl.completion.CompletionAgent", "idle")
        .allowBlockingCallsInside("io.fluxccl.completion.CompletionAgent", "park")
        .allowBlockingCallsInside("io.fluxccl.transport.ib.IbAgent", "idle")
        .allowBlockingCallsInside("io.fluxccl.transport.net.NetAgent", "idle")
        .allowBlockingCallsInside("io.fluxccl.netplugin.NetLoop", "idle");
  }
}

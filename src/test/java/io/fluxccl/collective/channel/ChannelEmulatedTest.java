// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.channel;

import io.fluxccl.testing.EmulatedGpus;

/** The contract on emulated GPUs. */
@EmulatedGpus
class ChannelEmulatedTest extends ChannelContract {}

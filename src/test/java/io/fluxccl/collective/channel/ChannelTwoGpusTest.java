// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.channel;

import io.fluxccl.testing.RequiresGpus;

/** The contract on GPUs, which several ranks may share. */
@RequiresGpus(2)
class ChannelTwoGpusTest extends ChannelContract {}

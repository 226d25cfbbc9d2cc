// SPDX-License-Identifier: Apache-2.0
/** An engine whose memory and stream FluxCCL uses: see README.md. */
package io.fluxccl.samples.foreign;

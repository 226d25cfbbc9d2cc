// SPDX-License-Identifier: Apache-2.0
/** The inference server: HTTP in front of a model that several ranks share. */
package io.fluxccl.samples.inference;

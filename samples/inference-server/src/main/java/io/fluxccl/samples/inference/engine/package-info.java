// SPDX-License-Identifier: Apache-2.0
/**
 * Runs a model for many requests at once: the batch of each step, the cache of keys and values, and
 * one rank's part of the model. Knows nothing of HTTP.
 */
package io.fluxccl.samples.inference.engine;

// SPDX-License-Identifier: Apache-2.0
/** Reads a model from a Hugging Face folder: its shape, its weights, its tokens. */
package io.fluxccl.samples.inference.model;

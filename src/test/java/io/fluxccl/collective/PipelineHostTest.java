// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import org.junit.jupiter.api.Tag;

/** Ranks on the host device. */
@Tag("jdk")
class PipelineHostTest extends PipelineContract {}

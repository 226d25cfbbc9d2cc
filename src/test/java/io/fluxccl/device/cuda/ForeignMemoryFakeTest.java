// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import io.fluxccl.testing.FakeCuda;
import io.fluxccl.testing.RequiresNativeLibrary;

@FakeCuda
@RequiresNativeLibrary
class ForeignMemoryFakeTest extends ForeignMemoryContract {}

// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.trace.JobDump;
import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;

/**
 * The former name of {@link JobDumpClient}.
 *
 * @deprecated Use {@link JobDumpClient}.
 */
@Deprecated
public final class JobInquiry {
  private final JobDumpClient client;

  /** Creates a {@link JobDumpClient}. */
  public JobInquiry(boolean all, Duration limit) {
    client = new JobDumpClient(all, limit);
  }

  /** {@link JobDumpClient#ofProcess}. */
  public List<CompletableFuture<JobDump>> ofProcess(long process) {
    return client.ofProcess(process);
  }

  /** {@link JobDumpClient#ofAddress}. */
  public CompletableFuture<JobDump> ofAddress(String address, Optional<JobSecret> secret) {
    return client.ofAddress(address, secret);
  }
}

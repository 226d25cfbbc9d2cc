// SPDX-License-Identifier: Apache-2.0
// The best token of a row by a cluster of eight blocks; compiled after hopper.cu and sampling.cu.

extern "C" __global__ void __cluster_dims__(8, 1, 1)
    bestByCluster(const Step* step, Choice choice, int isNucleus) {
  constexpr int kBlocks = 8;
  __shared__ long long found;
  const int index = blockIdx.x / kBlocks;
  const int block = blockIdx.x % kBlocks;
  if (!beginLaunch(index, step->chosen)) {
    return;
  }
  const int from = static_cast<int>(static_cast<long long>(choice.width) * block / kBlocks);
  const int to = static_cast<int>(static_cast<long long>(choice.width) * (block + 1) / kBlocks);
  const long long own = bestOf(step, choice, isNucleus, index, from, to);
  if (threadIdx.x == 0) {
    found = own;
  }
  syncCluster();
  if (block == 0 && threadIdx.x == 0) {
    long long highest = own;
    for (int other = 1; other < kBlocks; ++other) {
      highest = max(highest, loadOf(other, &found));
    }
    choice.best[index] = highest;
  }
  syncCluster();  // until then block 0 reads from here
}

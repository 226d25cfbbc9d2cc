// The best token of a row by a cluster of eight blocks; compiled behind hopper.cu and sampling.cu.

extern "C" __global__ void __cluster_dims__(8, 1, 1)
    bestByCluster(const Step* step, const float* logits, int width, int firstToken, const float* mosts,
                  const int* limits, long long* best) {
  constexpr int kBlocks = 8;
  __shared__ long long found;
  const int index = blockIdx.x / kBlocks;
  const int block = blockIdx.x % kBlocks;
  beginLaunch();
  if (index >= step->chosen) {
    return;
  }
  const int from = static_cast<int>(static_cast<long long>(width) * block / kBlocks);
  const int to = static_cast<int>(static_cast<long long>(width) * (block + 1) / kBlocks);
  const float* row = logits + static_cast<size_t>(index) * width;
  const long long own = bestOf(step, index, row, from, to, firstToken, mosts, limits);
  if (threadIdx.x == 0) {
    found = own;
  }
  syncCluster();
  if (block == 0 && threadIdx.x == 0) {
    long long highest = own;
    for (int other = 1; other < kBlocks; ++other) {
      highest = max(highest, loadOf(other, &found));
    }
    best[index] = highest;
  }
  syncCluster();  // until then block 0 reads from here
}

// SPDX-License-Identifier: Apache-2.0
// The choice of tokens, as Nucleus.java says; compiled after llama.cu. Kernels but the last have a block for each row
// that gets a next token.

namespace {

// The data from which tokens are chosen, as in Kernels.Choice; a row for each row that gets a next token.
struct Choice {
  const float* logits;
  float* most;
  long long* coarse;
  long long* fine;
  int* limits;
  long long* best;
  int width;  // of logits
  int firstToken;

  __device__ const float* logitsOf(int row) const { return logits + static_cast<size_t>(row) * width; }
  __device__ long long* massesOf(int row, int level) const {
    return (level == 0 ? coarse : fine) + static_cast<size_t>(row) * kBins;
  }
};

constexpr int kInfinite = 0x7f800000;

// Returns the distance of a token from the most likely one, and its probability relative to that.
__device__ inline int distanceOf(float most, float logit, float temperature) {
  return static_cast<int>(fminf(kBins * kBins - 1, (most - logit) / temperature * 2048.0f));
}
__device__ inline unsigned long long massOf(float most, float logit, float temperature) {
  return static_cast<unsigned long long>(exp((logit - most) / static_cast<double>(temperature)) * (1ll << 40));
}

__device__ inline float gumbel(long long seed, int position, int token) {
  unsigned long long mixed = static_cast<unsigned long long>(seed) * 0x9e3779b97f4a7c15ull +
                             (static_cast<unsigned long long>(position) << 32 | static_cast<unsigned>(token));
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9ull;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebull;
  mixed ^= mixed >> 31;
  const double uniform = (static_cast<double>(mixed >> 12) + 0.5) / static_cast<double>(1ll << 52);
  return static_cast<float>(-log(-log(uniform)));
}

__device__ inline bool isFinite(float value) { return value - value == 0; }

__device__ inline long long candidate(float score, int token) {
  const int bits = score != score ? 0x7fc00000 : __float_as_int(score);  // of NaN more than of any number
  const int ordered = bits ^ (bits >> 31 & 0x7fffffff);
  return static_cast<long long>(static_cast<unsigned long long>(static_cast<long long>(ordered)) << 32) |
         (0x7fffffff - token);
}

// Returns the first bin with which the masses reach a share of their sum, or the last one.
__device__ inline int firstBin(const long long* masses, long long reach) {
  long long sum = 0;
  for (int bin = 0; bin < kBins - 1; ++bin) {
    sum += masses[bin];
    if (sum >= reach) {
      return bin;
    }
  }
  return kBins - 1;
}

}  // namespace

extern "C" __global__ void most(const Step* step, Choice choice) {
  const int row = blockIdx.x;
  if (!beginLaunch(row, step->chosen)) {
    return;
  }
  const float* from = choice.logitsOf(row);
  float highest = from[0];
  for (int i = threadIdx.x; i < choice.width; i += blockDim.x) {
    highest = fmaxf(highest, from[i]);
  }
  highest = ofBlock(highest, Most());
  if (threadIdx.x == 0) {
    choice.most[row] = highest;
  }
}

extern "C" __global__ void masses(const Step* step, int level, Choice choice) {
  __shared__ unsigned long long sums[kBins];
  const int row = blockIdx.x;
  if (!beginLaunch(row, step->chosen)) {
    return;
  }
  for (int bin = threadIdx.x; bin < kBins; bin += blockDim.x) {
    sums[bin] = 0;
  }
  __syncthreads();
  const float temperature = step->row(row).temperature;
  const float* from = choice.logitsOf(row);
  for (int i = threadIdx.x; temperature > 0 && i < choice.width; i += blockDim.x) {
    const int distance = distanceOf(choice.most[row], from[i], temperature);
    if (level == 0 || distance / kBins == choice.limits[row]) {
      const int bin = level == 0 ? distance / kBins : distance % kBins;
      atomicAdd(&sums[bin], massOf(choice.most[row], from[i], temperature));
    }
  }
  __syncthreads();
  for (int bin = threadIdx.x; bin < kBins; bin += blockDim.x) {
    choice.massesOf(row, level)[bin] = static_cast<long long>(sums[bin]);
  }
}

extern "C" __global__ void limit(const Step* step, int level, Choice choice) {
  __shared__ long long first[kBins];
  __shared__ long long second[kBins];
  const int row = blockIdx.x;
  if (!beginLaunch(row, step->chosen)) {
    return;
  }
  for (int bin = threadIdx.x; bin < kBins; bin += blockDim.x) {
    first[bin] = choice.massesOf(row, 0)[bin];
    second[bin] = level == 0 ? 0 : choice.massesOf(row, 1)[bin];
  }
  __syncthreads();
  if (threadIdx.x != 0) {
    return;
  }
  double all = 0;
  for (int bin = 0; bin < kBins; ++bin) {
    all += static_cast<double>(first[bin]);
  }
  long long reach = static_cast<long long>(all * step->row(row).topP);
  int bin = firstBin(first, reach);
  if (level == 1) {
    for (int before = 0; before < bin; ++before) {
      reach -= first[before];
    }
    bin = bin * kBins + firstBin(second, reach);
  }
  choice.limits[row] = bin;
}

// Finds the best token among some of a row's; all threads of the block get it. Unless isNucleus, every row's topP is 1.
__device__ inline long long bestOf(const Step* step, const Choice& choice, int isNucleus, int index, int from, int to) {
  const Row row = step->row(index);
  const float* logits = choice.logitsOf(index);
  const bool limited = isNucleus && row.topP < 1;
  long long highest = static_cast<long long>(1ull << 63);
#pragma unroll 8
  for (int i = from + threadIdx.x; row.temperature <= 0 && i < to; i += blockDim.x) {
    const long long one = candidate(logits[i], choice.firstToken + i);
    highest = highest < one ? one : highest;
  }
  for (int i = from + threadIdx.x; row.temperature > 0 && i < to; i += blockDim.x) {
    // A logit that is not finite is kept, and makes the choice fail.
    if (limited && isFinite(logits[i]) &&
        distanceOf(choice.most[index], logits[i], row.temperature) > choice.limits[index]) {
      continue;
    }
    const float score = logits[i] / row.temperature + gumbel(row.seed, row.position, choice.firstToken + i);
    const long long one = candidate(score, choice.firstToken + i);
    highest = highest < one ? one : highest;
  }
  return ofBlock(highest, Most());
}

extern "C" __global__ void best(const Step* step, Choice choice, int isNucleus) {
  const int index = blockIdx.x;
  if (!beginLaunch(index, step->chosen)) {
    return;
  }
  const long long highest = bestOf(step, choice, isNucleus, index, 0, choice.width);
  if (threadIdx.x == 0) {
    choice.best[index] = highest;
  }
}

// One block; next is memory of the host.
extern "C" __global__ void choose(const Step* step, const long long* best, int* next) {
  beginLaunch();
  for (int row = threadIdx.x; row < step->chosen; row += blockDim.x) {
    const int ordered = static_cast<int>(best[row] >> 32);
    const bool finite = ordered < kInfinite && ordered > ~kInfinite;
    next[row] = finite ? 0x7fffffff - static_cast<int>(best[row]) : -1;
  }
}

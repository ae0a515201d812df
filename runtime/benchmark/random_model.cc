#include "runtime/benchmark/random_model.h"

#include <algorithm>
#include <array>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/hoststore/split_float.h"

namespace megatrain {
namespace {

constexpr float kStandardDeviation = 0.02f;

// Elements that one call of the pool fills.
constexpr int64_t kChunkElements = 1 << 20;

// Billions of normal values in seconds: each is picked, by 16 random bits, from a table of drawn
// ones and their negatives, whose mean is 0.
using NormalTable = std::array<float, 1 << 16>;

NormalTable DrawTable(uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0.0f, kStandardDeviation);
  NormalTable table;
  for (size_t i = 0; i < table.size(); i += 2) {
    table[i] = normal(random);
    table[i + 1] = -table[i];
  }
  return table;
}

// A step of the SplitMix64 generator: a function of the counter alone, so that any part can be
// filled by any thread.
uint64_t Hash(uint64_t counter) {
  uint64_t bits = counter * 0x9e3779b97f4a7c15u;
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9u;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebu;
  return bits ^ (bits >> 31);
}

bool IsNorm(TensorRole role) {
  return role == TensorRole::kAttentionNorm || role == TensorRole::kMlpNorm ||
         role == TensorRole::kFinalNorm;
}

// The values of one tensor.
struct Distribution {
  const NormalTable& table;
  uint64_t stream;
  float mean;
};

// Elements [first, end) of a tensor whose planes start at `hi` and `lo`.
void FillRange(const Distribution& values, int64_t first, int64_t end, uint16_t* hi, int16_t* lo) {
  constexpr int64_t kValuesPerHash = 4;
  for (int64_t i = first; i < end; i += kValuesPerHash) {
    uint64_t bits = Hash(values.stream + static_cast<uint64_t>(i));
    for (int64_t j = i; j < std::min(i + kValuesPerHash, end); ++j, bits >>= 16) {
      const SplitFloat weight = Split(values.mean + values.table[bits & 0xffff]);
      hi[j] = weight.hi;
      lo[j] = weight.lo;
    }
  }
}

}  // namespace

void FillRandomWeights(const ModelLayout& layout, uint64_t seed, OptimizerPool& pool,
                       HostStore& store) {
  const NormalTable table = DrawTable(seed);
  uint64_t stream = Hash(seed + 1);
  for (int unit = 0; unit < store.unit_count(); ++unit) {
    if (!store.owns(unit)) {
      continue;
    }
    const HostStore::Access access = store.BeginAccess(unit);
    for (const TensorLayout& tensor : layout.units[unit].tensors) {
      uint16_t* hi = store.hi(unit) + tensor.offset_elements;
      int16_t* lo = store.lo(unit) + tensor.offset_elements;
      const Distribution values = {table, stream, IsNorm(tensor.role) ? 1.0f : 0.0f};
      const int64_t chunks = (tensor.element_count + kChunkElements - 1) / kChunkElements;
      pool.Run(chunks, [&](int64_t chunk) {
        const int64_t first = chunk * kChunkElements;
        FillRange(values, first, std::min(first + kChunkElements, tensor.element_count), hi, lo);
      });
      stream = Hash(stream);
    }
  }
}

absl::StatusOr<StepBatch> RandomStep(const BatchShape& shape, int64_t vocab_size, uint64_t seed) {
  if (shape.tokens < 2 || shape.sequence_length < 2 ||
      shape.micro_batch_tokens < std::min(shape.sequence_length, shape.tokens)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a step of ", shape.tokens, " tokens in rows of ", shape.sequence_length,
                     " and micro-batches of ", shape.micro_batch_tokens,
                     ": each must be at least 2, and a row must fit in a micro-batch"));
  }
  std::mt19937_64 random(seed);
  std::uniform_int_distribution<int32_t> draw(0, static_cast<int32_t>(vocab_size - 1));
  StepBatch step;
  for (int64_t done = 0; done < shape.tokens;) {
    const int64_t count = std::min(shape.sequence_length, shape.tokens - done);
    if (step.micro_batches.empty() ||
        static_cast<int64_t>(step.micro_batches.back().tokens.size()) + count >
            shape.micro_batch_tokens) {
      step.micro_batches.emplace_back();
    }
    std::vector<int32_t> tokens(count);
    std::generate(tokens.begin(), tokens.end(), [&] { return draw(random); });
    std::vector<uint8_t> trained(count, 1);
    trained[0] = 0;
    step.micro_batches.back().Append(done / shape.sequence_length, tokens, trained);
    step.token_count += count;
    step.loss_token_count += count - 1;
    done += count;
  }
  return step;
}

}  // namespace megatrain

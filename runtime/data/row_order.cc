#include "runtime/data/row_order.h"

#include <openssl/sha.h>

#include <cstring>
#include <numeric>
#include <string>
#include <utility>

namespace megatrain {
namespace {

// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014).
class SplitMix64 {
 public:
  explicit SplitMix64(uint64_t state) : state_(state) {}

  uint64_t Next() {
    state_ += 0x9e3779b97f4a7c15;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }

  // Uniform in [0, bound).
  uint64_t Below(uint64_t bound) {
    const uint64_t rejected = (0 - bound) % bound;  // 2^64 mod bound: the surplus of small values
    uint64_t value = Next();
    while (value < rejected) {
      value = Next();
    }
    return value % bound;
  }

 private:
  uint64_t state_;
};

uint64_t StartState(std::string_view fingerprint, int64_t seed, int64_t epoch) {
  const std::string text =
      std::string(fingerprint) + ":" + std::to_string(seed) + ":" + std::to_string(epoch);
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest);
  uint64_t state = 0;
  std::memcpy(&state, digest, sizeof(state));
  return state;
}

}  // namespace

std::vector<int64_t> RowOrder(int64_t row_count, int64_t seed, int64_t epoch,
                              std::string_view fingerprint) {
  std::vector<int64_t> rows(row_count);
  std::iota(rows.begin(), rows.end(), 0);
  SplitMix64 random(StartState(fingerprint, seed, epoch));
  for (int64_t last = row_count - 1; last > 0; --last) {
    std::swap(rows[last], rows[random.Below(static_cast<uint64_t>(last) + 1)]);
  }
  return rows;
}

}  // namespace megatrain

// Measures UpdateUnit alone, for more and more threads up to one a processor:
// adamw_benchmark [million parameters [gradient bytes]].

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/time/time.h"
#include "runtime/base/allowed_processors.h"
#include "runtime/optimizer/adamw_measurement.h"

namespace megatrain {
namespace {

int Main(int argc, char** argv) {
  const int most_threads = AllowedProcessors();
  const int64_t count = int64_t{argc > 1 ? std::atoi(argv[1]) : 64} << 20;
  const int gradient_bytes = argc > 2 ? std::atoi(argv[2]) : 2;
  auto measurement = AdamWMeasurement::Create(
      {.element_count = count, .gradient_bytes = gradient_bytes, .fill_threads = most_threads});
  if (!measurement.ok()) {
    std::fprintf(stderr, "%s\n", std::string(measurement.status().message()).c_str());
    return 1;
  }
  for (const int threads : {1, 2, 4, 8, 12, 14, 15, 16, 24, 32, 48, 64, 96, 128}) {
    if (threads > most_threads) {
      break;
    }
    const auto rate = (*measurement)->Measure(threads, absl::Seconds(2));
    std::printf("%d threads, %" PRId64 " parameters: %.3f Gparam/s, %.1f GB/s\n", threads, count,
                rate.parameters_per_second / 1e9, rate.bytes_per_second / 1e9);
  }
  return 0;
}

}  // namespace
}  // namespace megatrain

int main(int argc, char** argv) { return megatrain::Main(argc, argv); }
